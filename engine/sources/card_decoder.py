"""Decode videos with a GPU's decoder (NVDEC), through FFmpeg, into the GPU's memory.

FFmpeg reads the file, keeps the order, times and number of the frames as on the CPU, and runs
without the GIL. What NVDEC cannot decode bit-identically to the CPU is left to the CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine import extras
from engine.backends.base import FrameIntake, Nv12, VideoDevice
from engine.backends.frame_picture import FramePicture
from engine.errors import DeviceError
from engine.files.naming import shown

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

_log = logging.getLogger("engine")

# Their standards define every bit of a decoded frame.
_EXACT = frozenset({"h264", "hevc", "vp8", "vp9"})
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG


class _NotForCardError(Exception):
    """A video, or the rest of one, must be decoded on the CPU."""


CARD_ERRORS = (_NotForCardError, DeviceError)


class CardDecoder:
    """Opens videos on a GPU; logs each reason for falling back to the CPU once. Thread-safe."""

    def __init__(self, device: VideoDevice) -> None:
        self._device = device
        self._refused: set[str] = set()  # names of videos
        self._told: set[str] = set()  # logged reasons

    def takes(self, name: str) -> bool:
        return name not in self._refused

    def video(self) -> CardVideo:
        return CardVideo(self._device)

    def refuse(self, name: str, reason: str) -> None:
        """Leave a video to the CPU from now on."""
        self._refused.add(name)
        level = logging.DEBUG if reason in self._told else logging.WARNING
        self._told.add(reason)
        _log.log(level, "%s: video: decode: gpu: %s. The CPU decodes it", shown(name), reason)


class CardVideo:
    """One video that is open on a GPU."""

    def __init__(self, device: VideoDevice) -> None:
        self._device = device
        self._intake: FrameIntake = device.intake()

    @contextmanager
    def opened(self, open_video: Callable[..., InputContainer]) -> Iterator[InputContainer]:
        """Yield the container, whose frames stay on the GPU."""
        hardware = _hardware(self._device.number)
        with self._device.held():  # FFmpeg frees its GPU memory on closing
            with self._device.entered():  # FFmpeg adopts the current context
                container = open_video(hwaccel=hardware)
            with container:
                yield container

    def check(self, stream: VideoStream) -> None:
        """Raise if the GPU does not decode this codec."""
        codec = stream.codec_context.name
        if codec not in _EXACT or not stream.codec_context.is_hwaccel:
            raise _NotForCardError(f"{codec} is not decoded there")

    def check_frame(self, frame: VideoFrame) -> None:
        """Raise if a frame was decoded by FFmpeg in software, or its values are not bytes."""
        if frame.format.name != "cuda":
            raise _NotForCardError("the GPU's decoder does not support the video")
        kind = frame.sw_format
        if kind is None or kind.name != "nv12":
            found = "its kind of frames" if kind is None else kind.name
            raise _NotForCardError(f"expected frames of 8 bits in 4:2:0, got {found}")

    def picture(self, frame: VideoFrame, path: str) -> FramePicture | None:
        """Return a frame as a picture on the GPU, or None for one that the CPU must convert."""
        size = frame.width, frame.height
        if frame.height % 2 or frame.interlaced_frame:  # swscale converts these differently
            return None
        luma, chroma = frame.planes[:2]
        layout = luma.buffer_ptr, luma.line_size, chroma.buffer_ptr, chroma.line_size
        is_full = int(frame.color_range) == _FULL_RANGE
        nv12 = Nv12(size, *layout, matrix=int(frame.colorspace), is_full=is_full)
        taken = self._intake.take(nv12, frame)
        if taken is None:
            return None
        return FramePicture(taken, size, quarter_turns(frame), path)

    def close(self) -> None:
        self._intake.close()


def quarter_turns(frame: VideoFrame) -> int:
    """Return how many quarter turns counter-clockwise make a frame upright."""
    return round(frame.rotation / 90) % 4


def _hardware(number: int) -> Any:
    """Return PyAV's argument for the GPU whose context is current, or raise an error."""
    import av
    from av.codec import hwaccel

    cure = f"Run: {extras.command('gpu-decode')}"
    try:
        # The primary context has its own flags, which FFmpeg would refuse.
        found = hwaccel.HWAccel(
            "cuda",
            device=str(number),
            allow_software_fallback=True,
            is_hw_owned=True,
            options={"primary_ctx": "0", "current_ctx": "1"},
        )
    except TypeError:
        problem = f"PyAV {av.__version__} cannot leave frames on a card. {cure}"
        raise _NotForCardError(problem) from None
    if "cuda" not in hwaccel.hwdevices_available():
        raise _NotForCardError(f"this FFmpeg has no CUDA. {cure}")
    return found
