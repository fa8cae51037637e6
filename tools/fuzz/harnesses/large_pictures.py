"""An untrusted picture up to the largest that is read, decoded in a process with limits.

An input is a small picture. The number in its first four bytes is how many bytes its longest run
of equal bytes is stretched to, up to 32 MB, so that files become large and inputs stay small.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from functools import cache
from random import Random

from PIL import Image

from engine.vision import image
from engine.vision.decode_pool import DecodePool
from tools.fuzz.harnesses import pictures

MAX_SECONDS = 5.0  # of this process, which copies and checks the pixels
MAX_BYTES = 7 << 28  # a TIFF of floats may take 17 bytes for each of 89 million pixels

_HEAD = struct.Struct(">I")
_MAX_BYTES = 32 << 20
_RUN = re.compile(rb"(.)\1+", re.DOTALL)


def seeds() -> Iterator[bytes]:
    for each in pictures.seeds():
        yield _HEAD.pack(0) + each
    for side in ((1, 4000), (4000, 1), (3000, 3000), (9400, 9400)):
        for kind, mode in (("PNG", "1"), ("PNG", "P"), ("BMP", "1"), ("TIFF", "1"), ("GIF", "L")):
            buffer = io.BytesIO()
            options = {"compression": "tiff_deflate"} if kind == "TIFF" else {}
            Image.new(mode, side).save(buffer, kind, **options)
            content = buffer.getvalue()
            if len(content) < 1 << 20:
                yield _HEAD.pack(0) + content
    yield _HEAD.pack(_MAX_BYTES) + b"\xff\xd8" + b"\xff" * 100
    yield _HEAD.pack(_MAX_BYTES) + b"P2\n#" + b"c" * 99 + b"\n9 9 255\n1 2"
    yield _HEAD.pack(_MAX_BYTES) + b"P6 3300 3300 255\n" + bytes(100)


def mutate(data: bytes, random: Random) -> bytes:
    size = random.choice((0, 0, 1 << 16, 1 << 20, _MAX_BYTES))
    return _HEAD.pack(size) + pictures.mutate(data[_HEAD.size :], random)


def run(data: bytes) -> None:
    content = _stretched(data)
    assert image.read(content, decoder=_pool().read).channels == 3


def _stretched(data: bytes) -> bytes:
    if len(data) < _HEAD.size:
        return data
    size, content = min(_HEAD.unpack_from(data)[0], _MAX_BYTES), data[_HEAD.size :]
    runs = list(_RUN.finditer(content))
    if not runs or size <= len(content):
        return content
    longest = max(runs, key=lambda found: found.end() - found.start())
    filling = longest[1] * (size - len(content))
    return content[: longest.start()] + filling + content[longest.start() :]


@cache
def _pool() -> DecodePool:
    return DecodePool(1)
