"""A signal at any moment while a picture is decoded, after which decoding still works.

The first three bytes of an input are the delay in microseconds, the others are the picture.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from types import FrameType

from engine.errors import ImageError
from engine.vision import decode, image
from tools.fuzz.harnesses import pictures

_MAX_PIXELS = 1 << 22
_DELAY_BYTES = 3
_MAX_DELAY = 20_000  # us: longer than small pictures take
_GOOD = next(pictures.seeds())


def seeds() -> Iterator[bytes]:
    for number, picture in enumerate(pictures.seeds()):
        yield (37 * number % 3000).to_bytes(_DELAY_BYTES, "big") + picture


def mutate(data: bytes, random: Random) -> bytes:
    delay = random.randrange(random.choice((200, 1000, _MAX_DELAY)))
    picture = data[_DELAY_BYTES:]
    if random.random() < 0.3:
        picture = pictures.mutate(picture, random)
    return delay.to_bytes(_DELAY_BYTES, "big") + picture


def run(data: bytes) -> None:
    delay = int.from_bytes(data[:_DELAY_BYTES], "big") % _MAX_DELAY + 1
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        with suppress(KeyboardInterrupt):  # which may come at any line up to the end of the block
            try:
                signal.setitimer(signal.ITIMER_REAL, delay / 1e6)
                with suppress(ImageError):
                    image.read(data[_DELAY_BYTES:], max_pixels=_MAX_PIXELS)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert image.read(_GOOD).channels == 3
    assert not decode._QUIET._inside, "warnings stay suppressed"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
