"""An untrusted video: its first frames, decoded in order."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import ImageError
from engine.sources import video
from tools.fuzz.harnesses import pictures

if TYPE_CHECKING:
    from av.video.stream import VideoStream

MAX_SECONDS = 10.0  # FFmpeg looks at much of a file before its first frame

_FRAMES = 4
_CODECS = {"mp4": "mpeg4", "avi": "mjpeg", "matroska": "mpeg4", "mpegts": "mpeg2video"}


def seeds() -> Iterator[bytes]:
    for container, codec in _CODECS.items():
        yield _video(container, codec)
    yield b"ffconcat version 1.0\nfile 'a.mp4'\n"
    yield b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n"


def mutate(data: bytes, random: Random) -> bytes:
    return pictures.mutate(data, random)


def run(data: bytes) -> None:
    import av.logging

    av.logging.set_level(None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        path.write_bytes(data)
        frames = video.frames(str(path))
        try:
            for decoded, _ in zip(frames, range(_FRAMES), strict=False):
                assert decoded.picture(str(path)).pixels.ndim == 3
        except ImageError as error:
            if path.name not in str(error):
                raise AssertionError(f"no name: {error}") from error
        finally:
            frames.close()  # type: ignore[attr-defined]


def _video(container: str, codec: str) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as made:
        stream: VideoStream = made.add_stream(codec, rate=25)  # type: ignore[assignment]
        stream.width, stream.height = 32, 16
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number in range(3):
            grey = np.full((16, 32, 3), 60 * number, np.uint8)
            made.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        made.mux(stream.encode(None))
    return buffer.getvalue()
