"""Videos decoded on the card: the same frames and results as by the CPU, whatever fails."""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from engine.backends import frame_picture
from engine.backends.base import NoJpegEngineError, Nv12
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime import card_videos
from engine.backends.cuda.runtime.card_videos import CardVideos
from engine.backends.cuda.runtime.device_blocks import DeviceBlocks
from engine.benchmark import sources
from engine.errors import DeviceError, ImageError
from engine.sources import card_decoder, video
from engine.sources.card_decoder import CardDecoder
from engine.sources.reader import FrameSelection
from tests import needs
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.backends.cuda.nvdec_host import HostNvdec, posing
from tests.backends.cuda.nvjpeg_host import HostNvjpeg, install
from tests.devices import open_or_skip

av = needs.package("av")
pytestmark = needs_gxx

Array = NDArray[Any]
FRAMES = 11
# swscale has other code, and other last bits, for other processors
MOST = 0 if platform.machine() in ("x86_64", "AMD64") else 3


def write_noise(path: Path, size: tuple[int, int] = (66, 50), **options: Any) -> str:
    """Write coloured noise that differs from frame to frame, with frames in another order."""
    random = np.random.default_rng(7)
    codec, kind = options.pop("codec", "libx264"), options.pop("kind", "yuv420p")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = kind
        for name, value in options.items():
            setattr(stream.codec_context, name, value)
        for _ in range(FRAMES):
            coarse = random.integers(0, 256, (size[1] // 8 + 1, size[0] // 8 + 1, 3), np.uint8)
            pixels = coarse.repeat(8, 0).repeat(8, 1)[: size[1], : size[0]]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return str(path)


@pytest.fixture
def clip(tmp_path: Path) -> str:
    return write_noise(tmp_path / "clip.mp4")


@pytest.fixture
def nvdec(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostNvdec]:
    with posing(monkeypatch) as made:
        yield made


# ---------------------------------------------------------------- the conversion


@pytest.fixture
def videos(host: HostDevice) -> Iterator[CardVideos]:
    with closing(CardVideos(host.context, 0)) as made:
        yield made


def planes(size: tuple[int, int], seed: int = 0) -> tuple[Array, Array]:
    height = size[1]
    random = np.random.default_rng(seed)
    luma = random.integers(0, 256, (height, 128), np.uint8)
    return luma, random.integers(0, 256, (height // 2, 128), np.uint8)


def nv12(luma: Array, chroma: Array, size: tuple[int, int], matrix: int, *, is_full: bool) -> Nv12:
    return Nv12(size, luma.ctypes.data, 128, chroma.ctypes.data, 128, matrix, is_full)


def by_swscale(
    luma: Array, chroma: Array, size: tuple[int, int], matrix: int, range_: int
) -> Array:
    frame = av.VideoFrame(*size, "yuv420p")
    half = -(-size[0] // 2)
    for plane, values in zip(
        frame.planes, (luma, chroma[:, : 2 * half : 2], chroma[:, 1 : 2 * half : 2]), strict=True
    ):
        lines = np.zeros((plane.height, plane.line_size), np.uint8)
        lines[:, : plane.width] = values[:, : plane.width]
        plane.update(lines.tobytes())
    frame.colorspace, frame.color_range = matrix, range_
    found: Array = frame.to_ndarray(format="rgb24")
    return found


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("matrix", [1, 2, 4, 5, 6, 7, 9])
def test_colours_are_those_of_swscale(videos: CardVideos, matrix: int, is_full: bool) -> None:
    luma, chroma = planes((64, 48), matrix)
    frame = nv12(luma, chroma, (64, 48), matrix, is_full=is_full)
    with closing(videos.intake()) as intake:
        taken = intake.take(frame, None)
        assert taken is not None
        expected = by_swscale(luma, chroma, (64, 48), matrix, 2 if is_full else 1)
        assert np.abs(taken.to_host().astype(int) - expected).max() <= MOST


@pytest.mark.parametrize("size", [(2, 2), (6, 10), (42, 50), (65, 48), (67, 4), (127, 2)])
def test_widths_need_not_be_even(videos: CardVideos, size: tuple[int, int]) -> None:
    luma, chroma = planes(size)
    with closing(videos.intake()) as intake:
        taken = intake.take(nv12(luma, chroma, size, 1, is_full=False), None)
        assert taken is not None
        expected = by_swscale(luma, chroma, size, 1, 1)
        assert np.abs(taken.to_host().astype(int) - expected).max() <= MOST


def test_a_matrix_that_swscale_does_not_know_is_left_to_it(videos: CardVideos) -> None:
    with closing(videos.intake()) as intake:
        assert intake.take(nv12(*planes((8, 8)), (8, 8), 8, is_full=False), None) is None


def test_frames_stay_when_their_video_has_ended(host: HostDevice, videos: CardVideos) -> None:
    intake = videos.intake()
    both = planes((64, 48))
    frame = nv12(*both, (64, 48), 1, is_full=False)
    taken = [intake.take(frame, None) for _ in range(FRAMES)]
    intake.close()
    intake.close()
    assert intake.take(frame, None) is None
    for each in taken:
        assert each is not None
        each.wait()
        assert np.abs(each.to_host().astype(int) - by_swscale(*both, (64, 48), 1, 1)).max() <= MOST
    assert not host.context.driver_api.events


def test_without_memory_frames_are_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_videos, "_TOGETHER", 1)
    both = planes((64, 48))
    with closing(HostDevice(memory=1 << 40)) as device:
        object.__setattr__(device.context, "card", device.card)
        videos = CardVideos(device.context, 0)
        videos._blocks._most = 64 * 48 * 3 * 2
        with closing(videos.intake()) as intake:
            frame = nv12(*both, (64, 48), 1, is_full=False)
            held = [intake.take(frame, None) for _ in range(3)]
            assert [each is None for each in held] == [False, False, True]
            held.clear()
            gc.collect()
            assert intake.take(frame, None) is not None


# ---------------------------------------------------------------- frames of a file


def opened(name: str, card: CardDecoder | None, **options: Any) -> list[Any]:
    return list(video.frames(name, card=card, **options))


@pytest.fixture
def card(videos: CardVideos) -> CardDecoder:
    return CardDecoder(videos)


def assert_same_frames(found: list[Any], expected: list[Any]) -> None:
    assert [each.number for each in found] == [each.number for each in expected]
    assert [each.seconds for each in found] == [each.seconds for each in expected]
    for left, right in zip(found, expected, strict=True):
        assert left.rate == right.rate
        got, wanted = left.picture("x"), right.picture("x")
        assert got.size == wanted.size
        assert np.abs(got.pixels.astype(int) - wanted.pixels).max() <= MOST


def test_frames_are_those_of_the_cpu(clip: str, nvdec: HostNvdec, card: CardDecoder) -> None:
    found = []
    for each in video.frames(clip, card=card):
        picture = each.picture(clip)
        assert isinstance(picture, frame_picture.FramePicture)
        there = picture.on_device()
        assert there is not None
        assert there.shape == (50, 66, 3)
        found.append(picture.pixels)
        assert picture.on_device() is None
    expected = [each.pixels() for each in opened(clip, None)]
    assert len(found) == len(expected) == FRAMES
    assert (
        max(np.abs(a.astype(int) - b).max() for a, b in zip(found, expected, strict=True)) <= MOST
    )
    assert (nvdec.opened, nvdec.frames) == (1, FRAMES)


def test_a_surface_is_kept_until_it_is_read(clip: str, nvdec: HostNvdec, card: CardDecoder) -> None:
    """The stand-in's memory changes as soon as nobody holds a frame."""
    pictures = [each.picture(clip) for each in video.frames(clip, card=card)]
    expected = [each.pixels() for each in opened(clip, None)]
    for left, right in zip(pictures, expected, strict=True):
        assert np.abs(left.pixels.astype(int) - right).max() <= MOST


@pytest.mark.parametrize("break_at", [0, 1, 6, FRAMES - 1])
def test_a_failure_loses_no_frame_and_is_said_once(
    clip: str,
    nvdec: HostNvdec,
    card: CardDecoder,
    caplog: pytest.LogCaptureFixture,
    break_at: int,
) -> None:
    expected = opened(clip, None)
    nvdec.break_at = break_at
    assert_same_frames(opened(clip, card), expected)
    assert_same_frames(opened(clip, card), expected)
    (message,) = caplog.messages
    assert message == (
        f"{clip}: video: decode: gpu: Generic error in an external library. The CPU decodes it"
    )
    assert nvdec.opened == 1


def test_an_error_of_the_device_is_such_a_failure(
    clip: str,
    nvdec: HostNvdec,
    card: CardDecoder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise DeviceError("cuda:0: out of memory")

    monkeypatch.setattr(CardVideos, "intake", refuse)
    assert_same_frames(opened(clip, card), opened(clip, None))
    assert "decode: gpu: cuda:0: out of memory. The CPU decodes it" in caplog.text
    assert not nvdec.opened


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("kind", "p010le", "expected frames of 8 bits in 4:2:0, got p010le"),
        ("format", "yuv420p", "the GPU's decoder does not support the video"),
    ],
)
def test_other_frames_are_for_the_cpu(
    clip: str,
    nvdec: HostNvdec,
    card: CardDecoder,
    caplog: pytest.LogCaptureFixture,
    field: str,
    value: str,
    reason: str,
) -> None:
    setattr(nvdec, field, value)
    assert_same_frames(opened(clip, card), opened(clip, None))
    assert reason in caplog.text


def test_a_reason_is_told_once_for_all_videos(
    tmp_path: Path, nvdec: HostNvdec, card: CardDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.mkv", "b.mkv"):
        path = write_noise(tmp_path / name, codec="mpeg4")
        assert_same_frames(opened(path, card), opened(path, None))
    (message,) = caplog.messages
    assert message.endswith(
        "a.mkv: video: decode: gpu: mpeg4 is not decoded there. The CPU decodes it"
    )


def test_an_old_pyav_is_named_with_the_cure(
    clip: str, card: CardDecoder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(*_: object, **options: object) -> None:
        raise TypeError(f"unexpected {options}")

    monkeypatch.setattr("av.codec.hwaccel.HWAccel", old)
    assert_same_frames(opened(clip, card), opened(clip, None))
    assert f"PyAV {av.__version__} cannot leave frames on a card. Run: pip install" in caplog.text
    assert "[gpu-decode]" in caplog.text


def test_a_truncated_file_gives_the_same_frames_and_error(
    tmp_path: Path, nvdec: HostNvdec, card: CardDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tail.mkv"
    write_noise(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found: list[list[Any]] = []
    errors = []
    for each in (card, None):
        found += [[]]
        with pytest.raises(ImageError) as caught:
            found[-1].extend(video.frames(str(path), card=each))
        errors.append(str(caught.value))
    assert_same_frames(*found)
    (tmp_path / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(5000))
    for each in (card, None):
        with pytest.raises(ImageError) as caught:
            opened(str(tmp_path / "noise.mp4"), each)
        errors.append(str(caught.value))
    assert (errors[0], errors[2]) == (errors[1], errors[3])
    assert not caplog.messages  # the video is to blame, not the card


def test_a_stream_that_breaks_off_is_opened_on_the_card_again(
    clip: str, nvdec: HostNvdec, card: CardDecoder
) -> None:
    nvdec.break_at = 3
    nvdec.error = lambda: av.error.ConnectionResetError(104, "Connection reset by peer")
    with pytest.raises(ImageError, match="breaks off after 3 frames: Connection reset"):
        opened(clip, card, is_live=True)
    nvdec.break_at = None
    assert len(opened(clip, card, is_live=True)) == FRAMES
    assert nvdec.opened == 2


def test_odd_heights_and_fields_are_converted_by_the_host(
    tmp_path: Path, nvdec: HostNvdec, card: CardDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_noise(tmp_path / "odd.mkv", (66, 50))
    (first, *_) = opened(path, None)
    frame = first.frame
    on_card = card.video()
    monkeypatch.setattr(card_decoder, "Nv12", None)  # would fail

    class Frame:
        width, height, interlaced_frame = 66, 49, False

    assert on_card.picture(Frame(), path) is None  # type: ignore[arg-type]
    Frame.height, Frame.interlaced_frame = 50, True
    assert on_card.picture(Frame(), path) is None  # type: ignore[arg-type]
    assert frame.height == 50
    on_card.close()


# ---------------------------------------------------------------- the detector


Pair = tuple[engine.Detector, engine.Detector]


@pytest.fixture
def detectors(
    host: HostDevice, tiny_detector: Any, nvdec: HostNvdec, monkeypatch: pytest.MonkeyPatch
) -> Pair:
    """Detectors whose videos are decoded on the card, and on the CPU; both run on the card."""
    install(monkeypatch, HostNvjpeg())
    monkeypatch.setattr("engine.backends.open_device", lambda name: host)

    def load(decode: str) -> engine.Detector:
        files = tiny_detector.cfg, tiny_detector.weights
        return engine.load(
            *files, names=tiny_detector.names, device="cuda:0", batch=4, decode=decode
        )

    return load("gpu"), load("cpu")


def test_a_card_without_a_jpeg_engine_decodes_videos(
    host: HostDevice,
    detectors: Pair,
    clip: str,
    nvdec: HostNvdec,
    tiny_detector: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise NoJpegEngineError("nvjpegCreateEx: the card has no JPEG engine")

    monkeypatch.setattr(HostDevice, "open_decoder", refuse)
    files = tiny_detector.cfg, tiny_detector.weights
    detector = engine.load(*files, names=tiny_detector.names, device="cuda:0", decode="gpu")
    assert len(list(detector.stream(clip))) == FRAMES
    assert nvdec.frames == FRAMES
    assert caplog.messages == ["host: decode: gpu: has no JPEG engine. The CPU decodes JPEGs"]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 0
    assert sum(map(len, expected)) > 0
    for left, right in zip(found, expected, strict=True):
        assert (left.path, left.size, left.labels) == (right.path, right.size, right.labels)
        np.testing.assert_allclose(left.boxes, right.boxes, atol=MOST)
        np.testing.assert_allclose(left.scores, right.scores, atol=MOST)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_a_video_gives_the_same_results_without_a_copy(
    detectors: Pair, clip: str, workers: int, nvdec: HostNvdec, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_card, on_cpu = detectors
    expected = list(on_cpu.stream(clip))
    assert not nvdec.opened

    def copied(*_: object) -> None:
        raise AssertionError("copied to the host")

    monkeypatch.setattr(card_videos, "_pixels", copied)
    assert_same(list(on_card.stream(clip, workers=workers)), expected)
    assert_same(list(on_card.stream(clip, stride=3)), expected[::3])
    assert_same(list(on_card.stream([clip, clip])), expected * 2)
    assert nvdec.opened == 4


@pytest.mark.slow
def test_who_asks_for_the_picture_gets_it(detectors: Pair, clip: str) -> None:
    on_card, on_cpu = detectors
    expected = list(on_cpu.stream(clip, keep_pictures=True))
    found = list(on_card.stream(clip, keep_pictures=True))
    assert_same(found, expected)
    assert_same(on_card(clip), on_cpu(clip))
    tiles = {"tiles": (2, 1)}
    assert_same(list(on_card.stream(clip, **tiles)), list(on_cpu.stream(clip, **tiles)))
    on_card.close()
    for left, right in zip(found, expected, strict=True):
        assert np.abs(np.asarray(left.plot()).astype(int) - np.asarray(right.plot())).max() <= MOST


@pytest.mark.slow
def test_memory_does_not_grow(detectors: Pair, host: HostDevice, clip: str) -> None:
    on_card, _ = detectors

    def used() -> tuple[int, int]:
        """Return blocks in use and events; how many spare blocks there are depends on time."""
        slots = on_card._program._slots
        while slots._held:  # with the frames of runs that were submitted before a close()
            next(iter(slots._held)).settle()
        gc.collect()
        pools = [each for each in gc.get_objects() if isinstance(each, DeviceBlocks)]
        spare = sum(len(each._free) for each in pools if each._context is host.context)
        return len(host.context.driver.live) - spare, len(host.context.driver_api.events)

    list(on_card.stream([clip] * 2))
    before = used()
    for _ in range(6):
        list(on_card.stream([clip] * 2))
        stream = on_card.stream(clip)
        next(stream)
        stream.close()
    assert used() == before


def test_a_command_decodes_there(
    detectors: Pair, clip: str, nvdec: HostNvdec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.cli._sources import Feed, NamedMedia
    from engine.sources.media import Media, MediaKind

    feed = Feed([NamedMedia(Media(clip, MediaKind.VIDEO), "clip")], FrameSelection(), None, ())
    items = list(feed.decoded_by(detectors[0].card_decoder).items())
    assert all(isinstance(each.source, frame_picture.FramePicture) for each in items)
    assert [each.frame.number for each in items if each.frame] == list(range(FRAMES))


def test_videos_at_once_share_batches(
    detectors: Pair, clip: str, nvdec: HostNvdec, tmp_path: Path
) -> None:
    on_card, on_cpu = detectors
    names = [clip, write_noise(tmp_path / "other.mp4", (50, 66))]
    found = list(on_card.stream(names, at_once=2))
    assert [each.path for each in found] == names * FRAMES
    assert_same(found[::2] + found[1::2], list(on_cpu.stream(names)))
    assert nvdec.frames == 2 * FRAMES


def test_the_card_decodes_for_a_server(detectors: Pair, clip: str, nvdec: HostNvdec) -> None:
    needs.package("uvicorn")
    from engine.serve.live import LiveOptions
    from tests.serve.running import serving, until

    with serving(detectors[0], live=LiveOptions([clip])) as server:
        until(lambda: server.get("/sources").found["sources"][0]["frames"] > 1, 30)
    assert nvdec.frames > 1


def test_a_benchmark_tells_where_it_decodes(host: HostDevice, clip: str, nvdec: HostNvdec) -> None:
    taken, is_on_card = sources._video_times(clip, CardDecoder(host.open_videos()))
    assert is_on_card
    assert nvdec.frames >= FRAMES  # it is decoded several times
    assert taken["decode"] > 0
    assert not sources._video_times(clip, None)[1]


# ---------------------------------------------------------------- a real card


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.parametrize("codec", ["libx264", "libx265", "libvpx-vp9", "mpeg4"])
def test_a_card_decodes_as_the_cpu_does(
    tmp_path: Path, codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_noise(tmp_path / "clip.mkv", (322, 242), codec=codec)
    with closing(open_or_skip(lambda: CudaDevice(0))) as device:
        card = CardDecoder(device.open_videos())
        there = 0
        expected = opened(path, None)
        for each, other in zip(video.frames(path, card=card), expected, strict=True):
            picture = each.picture(path)
            there += isinstance(picture, frame_picture.FramePicture)
            np.testing.assert_array_equal(picture.pixels, other.pixels())
            assert (each.number, each.seconds) == (other.number, other.seconds)
        if caplog.messages and there == 0 and codec != "mpeg4":
            pytest.skip(caplog.messages[0])  # neither the library nor the engine is required
        assert there == (0 if codec == "mpeg4" else FRAMES)
