"""A process that decodes untrusted pictures for a DecodePool, with limits on itself.

Its processor time is limited by a timer whose signal the kernel delivers even while C code runs,
and its memory by RLIMIT_AS. It ends when the pool's end of the socket is closed.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from engine.errors import EngineError, ImageError
from engine.vision import decode_process, decoding_memory
from engine.vision.decode import decode_error
from engine.vision.decode_channel import (
    ERROR,
    FORMATS,
    GO,
    PIXELS,
    READY,
    SIZE,
    Channel,
    Job,
    Reply,
)
from engine.vision.image import Picture, read_encoded
from engine.vision.pixels import PICTURE_CHANNELS

if sys.platform != "win32":
    import resource

_STATM = Path("/proc/self/statm")
_IMPORTED_FOR_LAB = 32 << 20  # ImageCms and its library, mapped for the first LAB picture


def main(seconds: str, extra_bytes: str, connection: str, file: str) -> None:
    """Serve a pool until it closes its end; the arguments are those of a command line."""
    worker = _Worker(_connect(int(connection), int(file)), float(seconds), int(extra_bytes))
    with suppress(OSError, EOFError):  # the pool has ended
        worker.serve()


def _connect(connection: int, file: int) -> Channel:
    decode_process.prepare()
    if sys.platform == "win32":
        return Channel(socket.fromshare(sys.stdin.buffer.read()), -1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return Channel(socket.socket(fileno=connection), file)


class _StoppedError(EngineError):
    """The pool does not want this picture decoded."""


class _Worker:
    def __init__(self, channel: Channel, seconds: float, extra_bytes: int) -> None:
        self._channel = channel
        self._seconds = seconds
        self._extra_bytes = extra_bytes
        self._warnings = decode_process.Warnings()
        self._admitted: tuple[int, int] | None = None

    def serve(self) -> None:
        from engine.vision import formats  # noqa: F401 - imports Pillow's plugins

        logging.getLogger("engine").addHandler(self._warnings)
        self._channel.send_reply(Reply(READY))
        _silence_libraries()
        while True:
            reply, picture = self._work(*self._channel.receive_job())
            if reply is not None:
                self._channel.send_reply(reply, None if picture is None else picture.pixels)
            del picture

    def _work(self, job: Job, content: bytes) -> tuple[Reply | None, Picture | None]:
        """Return the reply, and the picture if there is one; None after STOP."""
        self._warnings.lines.clear()
        self._admitted = None
        try:
            self._limit(decoding_memory.of_header(content))
            picture = self._read(job, content)
        except _StoppedError:
            return None, None
        except ImageError as error:
            return Reply(ERROR, text=str(error)), None
        except MemoryError:
            reason = "does not fit into memory"
            return Reply(ERROR, text=f"{job.name}: picture: {reason}"), None
        except (OSError, EOFError):  # from the channel: Pillow's become ImageErrors
            raise
        except Exception as error:
            return Reply(ERROR, text=str(decode_error(job.name, error))), None
        finally:
            self._end_limits()
        return self._described(picture), picture

    def _read(self, job: Job, content: bytes) -> Picture:
        from engine.vision.formats import READABLE, format_of_extra

        if kind := format_of_extra(content):  # its decoders are not trusted with such files
            got = f"expected {READABLE}, got {kind}, which is not read from untrusted sources"
            raise ImageError(f"{job.name}: picture: {got}. Convert it to JPEG or PNG.")
        picture = read_encoded(
            content,
            job.name,
            orient=job.orient,
            max_pixels=job.max_pixels,
            lenient=job.lenient,
            admit=lambda image: self._admit(image, len(content)),
        )
        # Floats are expanded to three channels in the pool's process, as they take 12 bytes a
        # pixel.
        if picture.pixels.dtype == np.uint8 and job.channels in PICTURE_CHANNELS:
            picture = picture.with_channels(job.channels)
        return picture

    def _admit(self, image: decoding_memory.Opened, length: int) -> None:
        """Ask the pool whether it has memory for this picture."""
        if self._admitted == image.size:  # a truncated JPEG is opened again
            return
        width, height = image.size
        needed = decoding_memory.of_picture(image, length)
        code = FORMATS.index(image.format or "")
        self._channel.send_reply(Reply(SIZE, width, height, code, needed=needed))
        if self._channel.receive_answer() != GO:
            raise _StoppedError
        self._admitted = image.size
        self._limit(needed)

    def _described(self, picture: Picture) -> Reply:
        height, width, channels = picture.pixels.shape
        return Reply(
            *(PIXELS, width, height, channels, picture.pixels.dtype != np.uint8),
            orientation=picture.orientation,
            dpi=picture.dpi or (0.0, 0.0),
            profile=picture.icc_profile or b"",
            text="\n".join(self._warnings.lines),
        )

    def _limit(self, needed: int) -> None:
        """Limit this process to `needed` more bytes, and to its seconds from now on."""
        if sys.platform == "win32":  # the pool limits the time
            return
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        if _STATM.exists():
            used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
            most = used + needed + self._extra_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def _end_limits(self) -> None:
        if sys.platform == "win32":
            return
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _silence_libraries() -> None:
    """Discard what C libraries print about damaged pictures."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
