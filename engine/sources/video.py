"""Decode frames of videos, cameras and streams with PyAV (the extra [video])."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine import extras
from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.sources.addresses import with_ascii_host
from engine.sources.card_decoder import CARD_ERRORS, CardDecoder, CardVideo, quarter_turns
from engine.sources.cut_off import has_gap, is_cut_off
from engine.sources.media import is_camera, is_url
from engine.sources.stream_problems import problem_of
from engine.vision import picture_limits
from engine.vision.decode import check_size
from engine.vision.image import Picture

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.video.stream import VideoStream

_log = logging.getLogger("engine")

READ_TIMEOUT = 15.0  # seconds without data from a stream

# Seconds before a lost stream is reopened. Opening H.264 takes up to 2 s plus the wait for a key
# frame, so that a stream is back within 5 s.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 2.0
_TOLERANT = 19  # the first PyAV without an option for metadata that is not UTF-8
_FIRST_RETRIES = 3  # for a stream that has not had a frame yet
_STEADY_SECONDS = 10.0  # after which a lost stream counts as restored
_MOST_BAD = 25  # consecutive empty or damaged packets: a second of most streams
_DEFAULT_RATE = Fraction(25)
_LONGEST_FRAME = 2.0  # maximum seconds per frame of a played video; timestamps may be wrong
_LIVE_THREADS = 2  # each extra thread delays H.264 by a frame; the default is one per core
_CARD_THREADS = 4  # threads that feed a GPU's decoder; more are not faster
_PLAYLISTS = frozenset({"concat", "dash", "hls", "imf", "sdp", "webm_dash_manifest"})
_MOST_ASPECT = 8  # maximum pixel aspect ratio either way; real ones are below 3
_PADDING_PIXELS = 1 << 20
_USUAL_STEP = 1.5  # maximum usual time between frames, in frame durations
_SPARE_FRAMES = 2  # stated frames that may be missing
# Formats whose duration FFmpeg derives from the data, unless they state their frame count.
_COMPUTED_DURATIONS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "mpegts"})
_MICROSECONDS = 1_000_000  # the unit of a container's duration
_CAMERAS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}


@dataclass(frozen=True, eq=False)
class DecodedFrame:
    """A decoded frame, converted to RGB on demand."""

    number: int
    seconds: float
    rate: Fraction
    frame: VideoFrame
    on_card: CardVideo | None = None  # the video, if the frame is on a GPU
    stored_aspect: Fraction = Fraction(1)  # pixel aspect ratio before rotation

    @property
    def pixel_aspect(self) -> Fraction:
        """The ratio of a pixel's width to its height in the upright frame."""
        return 1 / self.stored_aspect if quarter_turns(self.frame) % 2 else self.stored_aspect

    def pixels(self) -> NDArray[Any]:
        """Return (height, width, 3) uint8, RGB, upright."""
        rgb = self.frame.to_ndarray(format="rgb24")
        return np.ascontiguousarray(np.rot90(rgb, quarter_turns(self.frame)))

    def picture(self, path: str) -> Picture:
        """Return the picture with the path of its video, on the GPU if the frame is there."""
        from av.error import FFmpegError

        taken = None if self.on_card is None else self.on_card.picture(self.frame, path)
        if taken is not None:
            return taken
        try:
            return Picture(self.pixels(), path)
        except FFmpegError as error:  # a damaged file may give a frame the wrong format
            problem = f"frame {self.number}: cannot be converted to RGB: {error.strerror}"
            raise ImageError(f"{shown(path)}: video: {problem}") from None


def require_pyav(name: str) -> None:
    """Raise an error about the video `name` if PyAV is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise InputError(
            f"{shown(name)}: video: PyAV is not installed. Run: {extras.command('video')}"
        ) from None


def frames(
    name: str, *, is_live: bool = False, card: CardDecoder | None = None
) -> Iterator[DecodedFrame]:
    """Yield all frames of a video in order; raise ImageError where it breaks off.

    A live stream is decoded with less delay and fewer threads. If the GPU (`card`) fails, the CPU
    continues from the first missing frame.
    """
    require_pyav(name)
    from av.error import FFmpegError

    count = 0
    reason = ""
    if card is not None and card.takes(name):
        try:
            for each in _decoded(name, is_live=is_live, card=card):
                count = each.number + 1
                yield each
            if count:
                return
        except CARD_ERRORS as error:
            reason = str(error)
        except FFmpegError as error:
            reason = f"{error.strerror}"
            if is_live and not _is_about_card(error):
                raise _broken(name, count, _reason(name, error, count)) from None
    # The CPU shows whether the video itself is broken.
    first = 0 if is_live else count
    try:
        for each in _decoded(name, is_live=is_live):
            if each.number < first:
                continue
            if reason and card is not None:
                card.refuse(name, reason)
                reason = ""
            count = each.number + 1
            yield each
    except FFmpegError as error:
        raise _broken(name, count, _reason(name, error, count)) from None
    if not count:
        raise ImageError(f"{shown(name)}: video: has no frames")


def _broken(name: str, count: int, reason: str) -> ImageError:
    frames = "1 frame" if count == 1 else f"{count} frames"
    where = f"breaks off after {frames}" if count else "cannot be read"
    return ImageError(f"{shown(name)}: video: {where}: {reason}")


def _reason(name: str, error: FFmpegError, count: int) -> str:
    if not is_url(name):
        return str(error.strerror)
    return problem_of(name, error, has_begun=count > 0, timeout=READ_TIMEOUT)


def _is_about_card(error: FFmpegError) -> bool:
    """Return whether an error of a stream comes from the GPU's decoder, not from the network."""
    from av.error import ExternalError

    return isinstance(error, ExternalError)


def _decoded(
    name: str, *, is_live: bool, card: CardDecoder | None = None
) -> Iterator[DecodedFrame]:
    with ExitStack() as stack:
        if card is None:
            on_card = None
            container = stack.enter_context(_open(name))
        else:
            on_card = stack.enter_context(closing(card.video()))
            container = stack.enter_context(on_card.opened(partial(_open, name)))
        stream = _video_stream_of(container, name)
        if on_card is not None:
            on_card.check(stream)
        if is_live or on_card is not None:
            stream.codec_context.thread_count = _LIVE_THREADS if is_live else _CARD_THREADS
        average = stream.average_rate  # some PyAV versions have their own number type
        rate = Fraction(average.numerator, average.denominator) if average else _DEFAULT_RATE
        aspect = _pixel_aspect(stream)
        count, start, last, longest = 0, 0.0, 0.0, 0.0
        decoded = _frames_of_live(container, stream, name) if is_live else container.decode(stream)
        for number, frame in enumerate(decoded):
            _check_frame_size(frame, name)
            if on_card is not None:
                on_card.check_frame(frame)
            seconds = frame.time if frame.time is not None else float(number / rate)
            start = start if number else seconds  # in a clip, the position in the recording
            yield DecodedFrame(number, seconds - start, rate, frame, on_card, aspect)
            longest = max(longest, seconds - last) if number else 0.0
            count, last = number + 1, max(last, seconds)
        if is_live:
            return
        lacks_frames = _lacks_frames(container, stream, count, last, rate)
        if lacks_frames and is_cut_off(name):
            raise _broken(name, count, "the rest of the file is missing")
        # With a variable rate, frames may be far apart, too, and a complete AVI may skip some.
        if (lacks_frames or longest * rate > _USUAL_STEP) and has_gap(name):
            raise ImageError(f"{shown(name)}: video: is damaged: frames are missing before its end")


def _frames_of_live(
    container: InputContainer, stream: VideoStream, name: str
) -> Iterator[VideoFrame]:
    """Yield frames; skip a few consecutive packets that cannot be decoded."""
    from av.error import InvalidDataError

    count = bad = 0
    for packet in container.demux(stream):
        bad += 1
        if packet.size:  # FFmpeg takes an empty packet for the end of the stream
            try:
                found = packet.decode()
            except InvalidDataError:
                found = None
            if found is not None:
                yield from found
                count, bad = count + len(found), 0
        if bad > _MOST_BAD:
            raise _broken(name, count, f"{bad} in a row cannot be decoded")
    yield from stream.decode()


def _lacks_frames(
    container: InputContainer, stream: VideoStream, count: int, last: float, rate: Fraction
) -> bool:
    """Return whether fewer frames were read than stated, or than fill the stated duration.

    `last` is the time of the last frame. If nothing is stated, frames may be missing. MP4 states
    only the frames before its first fragment.
    """
    if stream.frames >= max(count, 1):
        return count + _SPARE_FRAMES < stream.frames
    if container.format.name in _COMPUTED_DURATIONS:
        return True
    end = last + float((1 + _SPARE_FRAMES) / rate)
    return not container.duration or end < container.duration / _MICROSECONDS


def live_frames(
    name: str,
    *,
    reconnect: float | None = None,
    stopped: Event | None = None,
    on_lost: Callable[[ImageError], None] | None = None,
    card: CardDecoder | None = None,
) -> Iterator[DecodedFrame]:
    """Yield frames of a camera or stream; when it is lost, reopen it after growing pauses.

    This is repeated until `stopped` is set, or `reconnect` times. By default, a stream that has
    never had a frame is tried four times, a camera once; with math.inf there is no limit. Loss and
    recovery are logged once each; an unstable stream counts as lost until it stays. `on_lost` is
    called for each failure.
    """
    stopped = stopped or Event()
    failures = number = 0
    was_back = False
    start = time.monotonic()
    while not stopped.is_set():
        opened = time.monotonic()
        try:
            for decoded in frames(name, is_live=True, card=card):
                now = time.monotonic()
                if failures and not was_back:
                    was_back = True
                    _log.warning("%s: video: is back", shown(name))
                if now - opened > _STEADY_SECONDS:
                    failures, was_back = 0, False
                yield replace(decoded, number=number, seconds=now - start)
                number += 1
            lost = ImageError(f"{shown(name)}: video: the stream has ended")
            if not (is_url(name) or is_camera(name)):
                return
        except ImageError as error:
            lost = error
        if on_lost:
            on_lost(lost)
        limit = reconnect
        if limit is None and not number:
            limit = _FIRST_RETRIES if is_url(name) else 0
        if limit is not None and failures >= limit:
            raise lost
        failures += 1
        is_endless = limit is None or limit == math.inf
        if failures == 1 and (number or is_endless):
            how_often = "until it is back" if is_endless else f"at most {limit} times"
            _log.warning("%s. Reopening it %s", lost, how_often)
        stopped.wait(min(FIRST_PAUSE * 2 ** min(failures - 1, 9), LONGEST_PAUSE))


def played_frames(
    name: str,
    *,
    stopped: Event,
    on_lost: Callable[[ImageError], None],
    card: CardDecoder | None = None,
) -> Iterator[DecodedFrame]:
    """Yield the frames of a video at its own speed, over and over until `stopped` is set.

    Numbers and seconds keep increasing. A video that cannot be read, or breaks off, is reported
    once and retried.
    """
    number = 0
    start = time.monotonic()
    is_lost = is_cut = False
    while not stopped.is_set():
        began, rate, first = time.monotonic(), 1.0, number
        try:
            for decoded in frames(name, card=card):
                rate = float(decoded.rate)
                early = began + decoded.seconds - time.monotonic()
                stopped.wait(min(max(0.0, early), _LONGEST_FRAME))
                if stopped.is_set():
                    return
                if is_lost:
                    is_lost = False
                    _log.warning("%s: video: is back", shown(name))
                now = time.monotonic() - start
                yield replace(decoded, number=number, seconds=now)
                number += 1
            stopped.wait(min(1 / max(rate, 0.01), _LONGEST_FRAME))  # while the last frame lasts
            is_cut = False
        except ImageError as lost:
            on_lost(lost)
            if number > first:
                if not is_cut:
                    _log.warning("%s. Replaying it up to the damage", lost)
                is_cut = True
            else:
                if not is_lost:
                    _log.warning("%s. Reopening it until it is back", lost)
                is_lost = True
            stopped.wait(LONGEST_PAUSE)


def _open(name: str, **hardware: Any) -> InputContainer:
    import av

    if is_camera(name):
        system = _CAMERAS.get(sys.platform, "v4l2")
        number = name.removeprefix("/dev/video")
        device = {"v4l2": f"/dev/video{number}", "dshow": f"video={number}"}.get(system, number)
        camera: InputContainer = av.open(device, format=system, **hardware)
        return camera
    if is_url(name):
        over_tcp = {"rtsp_transport": "tcp"} if name.lower().startswith("rtsp") else {}
        stream: InputContainer
        address = with_ascii_host(name)
        stream = av.open(
            address, options=over_tcp, timeout=READ_TIMEOUT, **_tolerance(), **hardware
        )
        return stream
    # The prefix keeps FFmpeg from interpreting the name as a protocol.
    file: InputContainer = av.open(
        f"file:{name}", options=_local_options(), **_tolerance(), **hardware
    )
    return file


def _tolerance() -> dict[str, Any]:
    """Return the options with which PyAV before 19 accepts metadata that is not UTF-8."""
    import av

    is_strict = int(av.__version__.partition(".")[0]) < _TOLERANT
    return {"metadata_errors": "replace"} if is_strict else {}


@lru_cache(maxsize=1)
def _local_options() -> dict[str, str]:
    """Return FFmpeg options that keep a file, such as a playlist, from opening others."""
    import av

    formats = sorted(av.formats_available - _PLAYLISTS)
    return {"format_whitelist": ",".join(formats), "protocol_whitelist": "file"}


def _video_stream_of(container: InputContainer, name: str) -> VideoStream:
    stream = next(iter(container.streams.video), None)
    if stream is None:
        raise ImageError(f"{shown(name)}: video: has sound only, no pictures")
    if stream.codec_context is None:
        raise ImageError(f"{shown(name)}: video: its codec is unknown to this FFmpeg")
    _check_frame_size(stream, name)
    # A frame may be larger than its container states. The decoder pads frames, hence the margin;
    # _check_frame_size() is exact.
    most = 2 * picture_limits.PIXELS + _PADDING_PIXELS
    stream.codec_context.options = {"max_pixels": str(most)}
    stream.thread_type = "AUTO"
    return stream


def _pixel_aspect(stream: VideoStream) -> Fraction:
    """Return the pixel aspect ratio (width / height), or 1 if it is unknown or implausible."""
    stated = stream.sample_aspect_ratio or 1
    aspect = Fraction(stated.numerator, stated.denominator)
    return aspect if 1 / _MOST_ASPECT <= aspect <= _MOST_ASPECT else Fraction(1)


def _check_frame_size(of: VideoStream | VideoFrame, name: str) -> None:
    check_size(of.width, of.height, shown(name), max_pixels=picture_limits.PIXELS, hint="")
