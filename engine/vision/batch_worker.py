"""Processes that decode for a BatchDecoder: one imports what they need and forks the others.

They end when the decoder closes its end of the connection.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.errors import ImageError
from engine.files.stamp import Stamp
from engine.vision import decode_process, image
from engine.vision.batch_channel import BatchChannel, Decoded, Entry, Following, Job, LeftEncoded
from engine.vision.image import Picture
from engine.vision.plain_jpeg import PlainJpeg, plain_jpeg
from engine.vision.turbo_jpeg import new_pixels

_ALIGNMENT = 16  # as in GPU memory, so that adjacent pictures are copied at once


def main(*connections: str) -> None:
    """Serve each connection in a process of its own; the arguments are descriptors."""
    decode_process.prepare()
    from engine.vision import formats  # noqa: F401 - imports Pillow's plugins, before the fork

    sockets = [socket.socket(fileno=int(each)) for each in connections]
    for own in sockets:
        if os.fork() == 0:
            for each in sockets:
                if each is not own:
                    each.close()
            with suppress(OSError, EOFError):  # the decoder has ended
                _Worker(BatchChannel(own)).serve()
            os._exit(0)
    for each in sockets:
        each.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


class _Worker:
    def __init__(self, channel: BatchChannel) -> None:
        self._channel = channel
        self._segments: dict[int, mmap.mmap] = {}
        self._folder = ""
        self._log = decode_process.Warnings()

    def serve(self) -> None:
        logger = logging.getLogger("engine")
        logger.addHandler(self._log)
        logger.propagate = False
        self._channel.send_ready()
        while True:
            job, contents, number, file = self._channel.receive_job()
            for each in job.dropped:
                self._segments.pop(each, None)
            if file is not None:
                self._segments[number] = mmap.mmap(file, job.room)
                os.close(file)
            if job.folder != self._folder:
                self._folder = job.folder
                os.chdir(job.folder)
            writer = _Writer(self._segments[number], job.room)
            entries = list(self._entries(job, contents, writer))
            self._channel.send_answer(entries, writer.used)

    def _entries(self, job: Job, contents: Sequence[bytes], writer: _Writer) -> Iterator[Entry]:
        """Yield an entry for each source, until the segment is full."""
        remaining = iter(contents)
        for given in job.sources:
            source: Any = given
            if isinstance(given, Following):
                source = _File(given.name, next(remaining))
            self._log.lines.clear()
            start = time.perf_counter()
            try:
                if job.leaves_plain and (encoded := image.encoded_of(source)):
                    plain = plain_jpeg(encoded.content)
                    if plain and plain.width * plain.height <= job.max_pixels:
                        if not writer.has_room(len(plain.content)):
                            if writer.used:
                                return
                            yield None
                            continue
                        yield _left_encoded(plain, encoded.stamp, writer, start)
                        continue
                    source = encoded
                picture = image.read(
                    source,
                    channels=job.channels,
                    orient=job.orient,
                    max_pixels=job.max_pixels,
                    lenient=job.lenient,
                    decoder=writer.decode,
                )
            except (ImageError, MemoryError):  # the caller gets and reports the same error
                yield None
                continue
            pixels, profile = picture.pixels, picture.icc_profile or b""
            if not writer.has_room(pixels.nbytes + len(profile)):
                if writer.used:
                    return
                yield None
                continue
            place = writer.write(pixels)
            after = writer.write(np.frombuffer(profile, np.uint8)) if profile else 0
            milliseconds = (time.perf_counter() - start) * 1e3
            yield Decoded(
                place,
                pixels.shape,
                pixels.dtype != np.uint8,
                milliseconds,
                (after, len(profile)),
                picture.dpi,
                picture.damage,
                picture.orientation,
                tuple(self._log.lines),
                picture.stamp,
            )


def _left_encoded(
    plain: PlainJpeg, stamp: Stamp | None, writer: _Writer, start: float
) -> LeftEncoded:
    place = writer.write(np.frombuffer(plain.content, np.uint8))
    milliseconds = round((time.perf_counter() - start) * 1e3, 3)
    size = plain.width, plain.height, plain.channels
    return LeftEncoded(place, len(plain.content), *size, plain.orientation, milliseconds, stamp)


class _File(BytesIO):
    """A file in memory, with or without a name."""

    def __init__(self, name: str | None, content: bytes) -> None:
        super().__init__(content)
        self.name = name


class _Writer:
    """Writes one array after another into a segment."""

    def __init__(self, memory: mmap.mmap, room: int) -> None:
        self.used = 0
        self._memory = memory
        self._room = room
        self._lent: Array | None = None  # memory at the next write position

    def has_room(self, size: int) -> bool:
        return self.used + size + 2 * _ALIGNMENT <= self._room

    def write(self, values: np.ndarray[Any, Any]) -> int:
        """Write values and return their place."""
        place = self._place
        if values is not self._lent:
            np.ndarray(values.shape, values.dtype, self._memory, place)[...] = values
        self.used = place + values.nbytes
        return place

    def decode(self, content: bytes, name: str, *, channels: int, **options: Any) -> Picture:
        """Decode a picture, if possible directly to where write() would put its pixels."""
        return image.read_encoded(content, name, make=self._lend, **options)

    def _lend(self, shape: tuple[int, int, int]) -> Array:
        if not self.has_room(math.prod(shape)):
            return new_pixels(shape)
        self._lent = np.ndarray(shape, np.uint8, self._memory, self._place)
        return self._lent

    @property
    def _place(self) -> int:
        return -(-self.used // _ALIGNMENT) * _ALIGNMENT
