"""Decode frames of videos, cameras and streams with PyAV (the extra [video])."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine import extras
from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.sources.media import is_camera, is_url
from engine.vision import picture_limits
from engine.vision.decode import check_size

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

READ_TIMEOUT = 15.0  # seconds without data from a stream

_RETRIES = 3  # consecutive failures before a stream counts as lost
_DEFAULT_RATE = Fraction(25)
_PLAYLISTS = frozenset({"concat", "dash", "hls", "imf", "sdp", "webm_dash_manifest"})
_PADDING_PIXELS = 1 << 20
_CAMERAS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}


@dataclass(frozen=True, eq=False)
class DecodedFrame:
    """A decoded frame, converted to RGB on demand."""

    number: int
    seconds: float
    rate: Fraction
    frame: VideoFrame

    def pixels(self) -> NDArray[Any]:
        """Return (height, width, 3) uint8, RGB, upright."""
        rgb = self.frame.to_ndarray(format="rgb24")
        quarter_turns = round(self.frame.rotation / 90) % 4
        return np.ascontiguousarray(np.rot90(rgb, quarter_turns))


def require_pyav(name: str) -> None:
    """Raise an error about the video `name` if PyAV is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise InputError(
            f"{shown(name)}: video: PyAV is not installed. Run: {extras.command('video')}"
        ) from None


def frames(name: str) -> Iterator[DecodedFrame]:
    """Yield all frames of a video in order; raise ImageError where it breaks off."""
    require_pyav(name)
    from av.error import FFmpegError

    count = 0
    try:
        with _open(name) as container:
            stream = _video_stream_of(container, name)
            average = stream.average_rate  # some versions of PyAV have a number type of their own
            rate = Fraction(average.numerator, average.denominator) if average else _DEFAULT_RATE
            for count, frame in enumerate(container.decode(stream), start=1):
                _check_frame_size(frame, name)
                seconds = frame.time if frame.time is not None else float((count - 1) / rate)
                yield DecodedFrame(count - 1, seconds, rate, frame)
    except FFmpegError as error:
        where = f"breaks off after {count} frames" if count else "cannot be read"
        raise ImageError(f"{shown(name)}: video: {where}: {error.strerror}") from None
    if not count:
        raise ImageError(f"{shown(name)}: video: has no frames")


def live_frames(name: str, *, wait_seconds: float = 1.0) -> Iterator[DecodedFrame]:
    """Yield frames of a camera or stream; reopen a lost stream a few times."""
    failures = 0
    number = 0
    start = time.monotonic()
    while True:
        try:
            for decoded in frames(name):
                failures = 0
                seconds = time.monotonic() - start
                yield DecodedFrame(number, seconds, decoded.rate, decoded.frame)
                number += 1
            if not is_url(name):
                return
            failures += 1
            lost = ImageError(f"{shown(name)}: video: the stream has ended")
        except ImageError as error:
            failures += 1
            lost = error
        if failures > _RETRIES or not is_url(name):
            raise lost
        time.sleep(wait_seconds * failures)


def _open(name: str) -> InputContainer:
    import av

    if is_camera(name):
        system = _CAMERAS.get(sys.platform, "v4l2")
        number = name.removeprefix("/dev/video")
        device = {"v4l2": f"/dev/video{number}", "dshow": f"video={number}"}.get(system, number)
        return av.open(device, format=system)
    if is_url(name):
        over_tcp = {"rtsp_transport": "tcp"} if name.lower().startswith("rtsp") else {}
        return av.open(name, options=over_tcp, timeout=READ_TIMEOUT, metadata_errors="replace")
    # The prefix prevents FFmpeg from taking the name for a protocol.
    return av.open(f"file:{name}", options=_local_options(), metadata_errors="replace")


@lru_cache(maxsize=1)
def _local_options() -> dict[str, str]:
    """Return FFmpeg options that keep a file from opening others, as a playlist does."""
    import av

    formats = sorted(av.formats_available - _PLAYLISTS)
    return {"format_whitelist": ",".join(formats), "protocol_whitelist": "file"}


def _video_stream_of(container: InputContainer, name: str) -> VideoStream:
    stream = next(iter(container.streams.video), None)
    if stream is None:
        raise ImageError(f"{shown(name)}: video: has sound only, no pictures")
    if stream.codec_context is None:
        raise ImageError(f"{shown(name)}: video: its codec is unknown to this FFmpeg")
    check_size(stream.width, stream.height, shown(name), max_pixels=picture_limits.PIXELS)
    # A frame may be larger than its container says. The decoder pads frames, hence the margin;
    # _check_frame_size() is exact.
    most = 2 * picture_limits.PIXELS + _PADDING_PIXELS
    stream.codec_context.options = {"max_pixels": str(most)}
    stream.thread_type = "AUTO"
    return stream


def _check_frame_size(frame: VideoFrame, name: str) -> None:
    check_size(frame.width, frame.height, shown(name), max_pixels=picture_limits.PIXELS)
