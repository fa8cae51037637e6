"""Encode an annotated video with PyAV, frame by frame."""

from __future__ import annotations

import math
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
_MOST_TICKS = 65535  # per second, in MPEG-4
_MOST_TICKS_OF_FRAME = 10_000_000  # MP4 readers take much more for damage
_FIXED_RATES = {"mpeg2video": "h264"}  # replaces codecs that allow only a few rates


def extension_for(name: str) -> str:
    """Return the extension for the annotated copy of a video."""
    suffix = Path(name).suffix.lower()
    return suffix if suffix in _SUPPORTED and "://" not in name else _DEFAULT


def check_extension(path: str, option: str = "") -> None:
    """Refuse a file name whose extension is not that of a writable video format."""
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
        self._rate = _rate_of(first)
        # AVI has no timestamps: its frames have a constant rate.
        self._tick = 1 / self._rate if suffix == ".avi" else _fine_tick(self._rate)
        # WebM has square pixels only.
        self._aspect = first.pixel_aspect
        self._stretch = self._aspect if suffix == ".webm" else Fraction(1)
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
                codec = _FIXED_RATES.get(codec, codec)
                self._stream = self._container.add_stream(codec, rate=self._rate)
                self._stream.codec_context.time_base = self._tick
                # 4:2:0 chroma needs an even width and height
                size = max(1, round(image.width * self._stretch)), image.height
                self._stream.width, self._stream.height = (side + side % 2 for side in size)
                self._stream.codec_context.sample_aspect_ratio = self._aspect / self._stretch
                self._stream.pix_fmt = "yuv420p"
            encoded = av.VideoFrame.from_ndarray(self._fitted(image), format="rgb24")
            pts = round((frame.seconds - self._start) / self._tick)
            self._last_pts = max(self._last_pts + 1, pts)
            encoded.pts, encoded.time_base = self._last_pts, self._tick
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


def _rate_of(frame: Frame) -> Fraction:
    """Return the rate of a video in numbers that all containers can hold."""
    rate = min(frame.rate, _MAX_RATE)
    most = min(1001, _MOST_TICKS // math.ceil(rate))
    return rate.limit_denominator(most) or Fraction(1, round(1 / rate))


def _fine_tick(rate: Fraction) -> Fraction:
    """Return a fine time base that divides the frame duration, so that constant rates are exact."""
    most = min(_MOST_TICKS // rate.numerator, _MOST_TICKS_OF_FRAME // rate.denominator)
    return Fraction(1, rate.numerator * max(1, most))
