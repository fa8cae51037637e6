"""Encode an annotated video with PyAV, frame by frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from engine.errors import EngineError, InputError
from engine.files.atomic import NewFile
from engine.files.naming import shown
from engine.sources.item import Item
from engine.vision.extensions import VIDEO_EXTENSIONS
from engine.vision.frame import Frame

if TYPE_CHECKING:
    from av.container import OutputContainer

_DEFAULT = ".mp4"
_FORMATS = {".mkv": "matroska", ".m4v": "mp4", ".ts": "mpegts", ".mts": "mpegts"}
_SUPPORTED = {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts"}
_MAX_RATE = Fraction(1000)


def extension_for(name: str) -> str:
    """Return the extension for the annotated copy of a video."""
    suffix = Path(name).suffix.lower()
    return suffix if suffix in _SUPPORTED and "://" not in name else _DEFAULT


def check_extension(path: str, option: str = "") -> None:
    """Refuse the name of a file whose extension is of no video that can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUPPORTED:
        known = ", ".join(sorted(_SUPPORTED & VIDEO_EXTENSIONS))
        raise InputError(f"{option}{shown(path)}: expected one of {known}, got {suffix!r}")


class VideoWriter:
    """Writes frames at their original times, scaled to the size of the first one."""

    def __init__(self, file: NewFile, item: Item) -> None:
        import av

        assert item.frame
        first = item.frame

        check_extension(str(file.path))
        suffix = file.path.suffix.lower()
        self._file = file
        self._rate = min(first.rate.limit_denominator(1001), _MAX_RATE)
        self._start = first.seconds
        self._last_pts = -1
        self._stream: Any = None
        try:
            self._container: OutputContainer = av.open(
                f"file:{self._file.part}", "w", format=_FORMATS.get(suffix, suffix[1:])
            )
        except av.error.FFmpegError as error:
            raise self._unwritable(error) from None

    def add(self, image: Image.Image, frame: Frame) -> None:
        import av

        try:
            if self._stream is None:
                codec = self._container.default_video_codec
                self._stream = self._container.add_stream(codec, rate=self._rate)
                # 4:2:0 chroma needs an even width and height
                self._stream.width, self._stream.height = (side + side % 2 for side in image.size)
                self._stream.pix_fmt = "yuv420p"
            encoded = av.VideoFrame.from_ndarray(self._fitted(image), format="rgb24")
            pts = round((frame.seconds - self._start) * self._rate)
            self._last_pts = max(self._last_pts + 1, pts)
            encoded.pts = self._last_pts
            self._container.mux(self._stream.encode(encoded))
        except av.error.FFmpegError as error:
            self.discard()
            raise self._unwritable(error) from None

    def finish(self) -> None:
        import av

        try:
            if self._stream is not None:
                self._container.mux(self._stream.encode())
            self._container.close()
        except av.error.FFmpegError as error:
            self._file.discard()
            raise self._unwritable(error) from None
        self._file.keep()

    def discard(self) -> None:
        import av

        try:
            self._container.close()
        except av.error.FFmpegError:
            pass  # the file is removed anyway
        finally:
            self._file.discard()

    def _fitted(self, image: Image.Image) -> Any:
        width, height = self._stream.width, self._stream.height
        if (image.width + image.width % 2, image.height + image.height % 2) != (width, height):
            image = image.resize((width, height))
        pixels = np.asarray(image)
        missing = ((0, height - pixels.shape[0]), (0, width - pixels.shape[1]), (0, 0))
        return np.ascontiguousarray(np.pad(pixels, missing, mode="edge"))

    def _unwritable(self, error: Any) -> EngineError:
        return EngineError(f"{shown(str(self._file.path))}: cannot be written: {error.strerror}")
