"""JPEGs decoded on the card: same results, order and errors as by the CPU, whatever fails."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import engine
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import library, nvjpeg
from engine.backends.cuda.runtime import jpeg_decoder
from engine.backends.cuda.runtime.device_blocks import DeviceBlocks
from engine.backends.cuda.runtime.device_program import SLOTS
from engine.backends.cuda.runtime.jpeg_decoder import CardJpegDecoder
from engine.errors import DeviceError, ImageError, InputError
from engine.vision import batch_decoder, image
from engine.vision.batch_decoder import BatchDecoder
from engine.vision.plain_jpeg import PlainJpeg, plain_jpeg
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.nvjpeg_host import HostNvjpeg, install
from tests.devices import open_or_skip
from tests.vision.test_batch_decoder import started

pytestmark = needs_gxx

Array = NDArray[Any]
BATCH = 4


def jpeg(size: tuple[int, int] = (50, 40), seed: int = 0, **options: Any) -> bytes:
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    mode = options.pop("mode", "RGB")
    out = BytesIO()
    image = Image.fromarray(pixels).resize((width, height)).convert(mode)
    image.save(out, "JPEG", **options)
    return out.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(seed=orientation, exif=exif.tobytes())


def noisy() -> bytes:
    out = BytesIO()
    pixels = np.random.default_rng(5).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def encoded(form: str) -> bytes:
    out = BytesIO()
    Image.new("RGB", (30, 20), (200, 30, 90)).save(out, form)
    return out.getvalue()


# ---------------------------------------------------------------- the decoder


@pytest.fixture
def library_of_host(monkeypatch: pytest.MonkeyPatch) -> HostNvjpeg:
    library = HostNvjpeg()
    install(monkeypatch, library)
    return library


@pytest.fixture
def decoder(host: HostDevice, library_of_host: HostNvjpeg) -> Iterator[CardJpegDecoder]:
    made = CardJpegDecoder(host.context)
    yield made
    made.close()


def plain(*contents: bytes) -> list[PlainJpeg]:
    found = [plain_jpeg(each) for each in contents]
    assert None not in found
    return [each for each in found if each is not None]


def pixels_at(jpeg: PlainJpeg, decoded: Any) -> Array:
    import ctypes

    size = jpeg.height * decoded.row_step
    buffer = (ctypes.c_ubyte * size).from_address(decoded.pointer)
    rows = np.frombuffer(bytes(buffer), np.uint8).reshape(jpeg.height, -1)
    return rows[:, : jpeg.width * 3].reshape(jpeg.height, jpeg.width, 3)


def by_pillow(content: bytes) -> Array:
    return np.asarray(Image.open(BytesIO(content)).convert("RGB"))


def test_pictures_of_any_size_and_kind_lie_side_by_side(decoder: CardJpegDecoder) -> None:
    contents = [jpeg((50, 40)), jpeg((1, 1)), jpeg((7, 300), mode="L"), jpeg((333, 5), 3)]
    jpegs = plain(*contents)
    found = decoder.decode(jpegs)
    for each, there, content in zip(jpegs, found, contents, strict=True):
        np.testing.assert_array_equal(pixels_at(each, there), by_pillow(content))


def test_what_the_engine_refuses_leaves_the_others_in_its_batch(
    decoder: CardJpegDecoder, library_of_host: HostNvjpeg
) -> None:
    contents = [jpeg(), jpeg((16400, 1)), jpeg(seed=2)]
    jpegs = plain(*contents)
    found = decoder.decode(jpegs)
    assert [each is None for each in found] == [False, True, False]
    for number in (0, 2):
        np.testing.assert_array_equal(
            pixels_at(jpegs[number], found[number]), by_pillow(contents[number])
        )
    assert library_of_host.batches == [3, 2]


def test_a_batch_that_is_refused_for_no_visible_reason_goes_to_the_cpu(
    decoder: CardJpegDecoder, library_of_host: HostNvjpeg, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = jpeg(), jpeg(seed=1)
    library_of_host.refuse.add(bad)
    assert decoder.decode(plain(good, bad)) == [None, None]
    assert decoder.decode(plain(good))[0] is not None
    assert not caplog.records


def test_after_a_failure_the_cpu_decodes_everything_and_one_line_says_so(
    decoder: CardJpegDecoder, library_of_host: HostNvjpeg, caplog: pytest.LogCaptureFixture
) -> None:
    library_of_host.break_at = 1
    assert decoder.decode(plain(jpeg()))[0] is not None
    for _ in range(3):
        assert decoder.decode(plain(jpeg(), jpeg())) == [None, None]
    assert library_of_host.batches == [1, 2]
    (record,) = caplog.records
    assert record.getMessage() == (
        "host: decode: gpu: nvjpegDecodeBatched: execution failed."
        " The CPU decodes JPEGs from now on"
    )


@pytest.mark.slow
def test_memory_is_used_again_once_nothing_refers_to_it(decoder: CardJpegDecoder) -> None:
    jpegs = plain(jpeg(), jpeg(seed=1))
    first = decoder.decode(jpegs)
    other = decoder.decode(jpegs)
    places = {each.pointer for each in (*first, *other)}
    assert len(places) == 4
    del first[0]
    gc.collect()
    third = decoder.decode(jpegs)
    assert third[0].pointer not in places  # a picture of the first batch is left
    del first
    gc.collect()
    assert {each.pointer for each in decoder.decode(jpegs)} <= places


def test_without_room_the_cpu_decodes(
    host: HostDevice, library_of_host: HostNvjpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = DeviceBlocks(host.context)
    monkeypatch.setattr(blocks, "_most", 100_000)
    held = blocks.lease(60_000)
    assert held is not None
    assert blocks.lease(60_000) is None
    del held
    small = blocks.lease(20_000)
    assert small is not None  # a block three times as large is not wasted on it
    large = blocks.lease(95_000)
    assert large is None
    del small
    assert blocks.lease(90_000) is not None  # spare blocks were freed for it
    blocks.close()
    gc.collect()
    host.context.run(lambda: None)
    assert not host.context.driver.live


def test_threads_share_memory(host: HostDevice) -> None:
    blocks = DeviceBlocks(host.context)

    def use(seed: int) -> int:
        sizes = np.random.default_rng(seed).integers(1, 9, 300) * 1000
        held: list[Any] = []
        for size in sizes.tolist():
            held = [*held[-3:], blocks.lease(size)]
            places = [each.pointer for each in held]
            assert len(set(places)) == len(places)
        return len(sizes)

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(use, range(4))) == 1200
    blocks.close()
    assert not host.context.driver.live


def test_memory_that_others_use_up_is_no_failure(library_of_host: HostNvjpeg) -> None:
    class Full(HostDevice): ...

    with on_tape(Full()) as device:
        decoder = CardJpegDecoder(device.context)

        def mem_alloc(size: int) -> Any:
            raise DeviceError("host: out of memory")

        device.context.driver.mem_alloc = mem_alloc
        assert decoder.decode(plain(jpeg())) == [None]
        decoder.close()
    assert library_of_host.open == 0


def test_a_closed_decoder_leaves_everything_to_the_cpu(
    host: HostDevice, library_of_host: HostNvjpeg
) -> None:
    decoder = CardJpegDecoder(host.context)
    (kept,) = decoder.decode(plain(jpeg()))
    assert library_of_host.made == library_of_host.open == jpeg_decoder._UNITS
    decoder.close()
    assert library_of_host.open == 0
    assert not host.context.driver_api.events
    assert decoder.decode(plain(jpeg())) == [None]
    assert len(host.context.driver.live) == 1
    del kept
    gc.collect()
    host.context.run(lambda: None)
    assert not host.context.driver.live


def test_threads_that_wait_for_a_closed_decoder_leave_their_jpegs_to_the_cpu(
    host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(HostNvjpeg):
        def decode(self, *arguments: Any) -> bool:
            time.sleep(0.1)
            return super().decode(*arguments)

    install(monkeypatch, Slow())
    decoder = CardJpegDecoder(host.context)
    host.context.post(lambda: time.sleep(0.3))  # so that all threads have looked at is_usable
    jpegs = plain(jpeg())
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(decoder.decode, jpegs) for _ in range(4)]
        time.sleep(0.1)
        decoder.close()
        assert [len(each.result(10)) for each in found] == [1] * 4
    gc.collect()


def test_an_interrupted_close_can_be_repeated(
    host: HostDevice, library_of_host: HostNvjpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = CardJpegDecoder(host.context)
    units = decoder._units

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(decoder, "_units", SimpleNamespace(get=interrupted, put=units.put))
    with pytest.raises(KeyboardInterrupt):
        decoder.close()
    monkeypatch.setattr(decoder, "_units", units)
    decoder.close()
    assert library_of_host.open == 0


def test_memory_is_not_used_again_before_a_batch_that_failed_has_ended(
    host: HostDevice, library_of_host: HostNvjpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = CardJpegDecoder(host.context)
    waited: list[int] = []
    monkeypatch.setattr(host.context.driver_api, "wait", waited.append)
    library_of_host.break_at = 0
    assert decoder.decode(plain(jpeg())) == [None]
    assert len(waited) == 1
    decoder.close()


# ---------------------------------------------------------------- what is missing


def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvjpeg.libnvjpeg.cache_clear()
    monkeypatch.setattr(library, "find", lambda wanted: None)
    with pytest.raises(DeviceError, match=r"libnvjpeg\.so\.\* not found\. Run: pip install .*gpu"):
        nvjpeg.libnvjpeg()


class OldDriver:
    def get_driver_version(self) -> int:
        return 12040


class SomeVersion:
    """A library of which only the version can be asked."""

    version = 13, 3

    def nvjpegGetProperty(self, kind: int, out: Any) -> int:  # noqa: N802
        out._obj.value = self.version[kind]
        return 0

    nvjpegGetCudartProperty = nvjpegGetProperty  # noqa: N815


def test_an_old_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvjpeg, "libnvjpeg", SomeVersion)
    monkeypatch.setattr(nvjpeg.pycuda_loader, "load", OldDriver)
    expected = (
        r"decode: gpu: nvJPEG is for CUDA 13, the driver for CUDA 12\.4\. "
        r"Update the driver, or use --decode cpu"
    )
    with pytest.raises(DeviceError, match=expected):
        nvjpeg.check_version()


def test_a_library_that_repeats_chroma_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SomeVersion, "version", (12, 0))
    monkeypatch.setattr(nvjpeg, "libnvjpeg", SomeVersion)
    with pytest.raises(DeviceError, match=r"nvJPEG: expected 12\.1 or later, got 12\.0\. Run: pip"):
        nvjpeg.check_version()


def test_a_card_without_a_jpeg_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def nvjpegCreateEx(self, *arguments: Any) -> int:  # noqa: N802
            return 7

    monkeypatch.setattr(nvjpeg, "libnvjpeg", Library)
    with pytest.raises(DeviceError) as caught:
        nvjpeg.BatchDecoder()
    assert str(caught.value) == (
        "decode: gpu: nvjpegCreateEx: the card has no JPEG engine. Use --decode cpu"
    )


def test_a_decoder_that_opens_by_half_leaves_nothing_behind(
    host: HostDevice, library_of_host: HostNvjpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> HostNvjpeg:
        if library_of_host.open:
            raise DeviceError("out of memory")
        return library_of_host()

    install(monkeypatch, make)
    with pytest.raises(DeviceError, match="out of memory"):
        CardJpegDecoder(host.context)
    assert library_of_host.open == 0
    assert not host.context.driver_api.events


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "cuda"}, r"decode: expected auto, cpu, gpu, got 'cuda'"),
        ({"decode": "gpus"}, r"got 'gpus'\. Did you mean 'gpu'\?"),
        ({"decode": None}, r"decode: expected auto, cpu, gpu, got None"),
        ({"decode": "gpu", "untrusted": True}, "decode: gpu: not with untrusted"),
        (
            {"decode": "gpu", "device": "cpu"},
            r"decode: gpu: expected one NVIDIA GPU, got device cpu:?\d*\. Use --decode cpu",
        ),
    ],
)
def test_what_cannot_be_is_refused(tiny_detector: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tiny_detector, **options)


# ---------------------------------------------------------------- the detector


def load(model: Any, **options: Any) -> engine.Detector:
    return engine.load(model.cfg, model.weights, names=model.names, **options)


@pytest.fixture
def detectors(
    host: HostDevice,
    tiny_detector: Any,
    library_of_host: HostNvjpeg,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[engine.Detector, engine.Detector]]:
    """Detectors whose pictures are decoded on the card, and on the CPU; both run on the card."""

    def open_decoder(device: CudaDevice) -> CardJpegDecoder:
        device._decoders.append(CardJpegDecoder(device._context))
        return device._decoders[-1]

    monkeypatch.setattr(CudaDevice, "open_decoder", open_decoder)
    monkeypatch.setattr("engine.backends.open_device", lambda name: host)
    on_card = load(tiny_detector, device="cuda:0", batch=BATCH, decode="gpu")
    on_cpu = load(tiny_detector, device="cuda:0", batch=BATCH, decode="cpu")
    return on_card, on_cpu


Pair = tuple[engine.Detector, engine.Detector]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Good and bad pictures of all kinds, in an order that mixes them."""
    files = {
        "a.jpg": jpeg(),
        "b turned.jpg": turned(6),
        "c progressive.jpg": jpeg(seed=2, progressive=True),
        "d.png": encoded("PNG"),
        "e.jpg": jpeg((61, 33), 3),
        "f cmyk.jpg": jpeg(mode="CMYK"),
        "g truncated.jpg": jpeg()[:-200],
        "h grey.jpg": jpeg(seed=4, mode="L"),
        "i text.jpg": b"no picture",
        "j empty.jpg": b"",
        "k one.jpg": jpeg((1, 1)),
        "l wide.jpg": jpeg((16400, 2)),
        "m mirrored.jpg": turned(7),
        "n damaged.jpg": noisy().replace(b"\xff\x00", b"\xff\x11"),
        "o.jpg": jpeg(seed=6),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        if isinstance(right, ImageError):
            assert isinstance(left, ImageError)
            assert str(left) == str(right)
            continue
        assert (left.path, left.size, left.labels) == (right.path, right.size, right.labels)
        assert left.stamp == right.stamp
        np.testing.assert_array_equal(left.boxes, right.boxes)
        np.testing.assert_array_equal(left.scores, right.scores)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_folder_gives_the_same_results_and_errors_in_the_same_order(
    detectors: Pair, folder: Path, workers: int, library_of_host: HostNvjpeg
) -> None:
    on_card, on_cpu = detectors
    expected = list(on_cpu.stream(folder, on_error="yield"))
    assert sum(isinstance(each, ImageError) for each in expected) == 4
    assert sum(len(each) for each in expected if not isinstance(each, ImageError)) > 0
    found = list(on_card.stream(folder, on_error="yield", workers=workers))
    assert_same(found, expected)
    assert sum(library_of_host.batches) >= 8


@pytest.mark.slow
@pytest.mark.skipif(not batch_decoder.IS_POSSIBLE, reason="needs files in memory")
def test_processes_read_the_files_of_a_long_stream(
    detectors: Pair,
    folder: Path,
    library_of_host: HostNvjpeg,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_card, on_cpu = detectors
    expected = list(on_cpu.stream(folder, on_error="yield"))
    on_card._runs._batch_decoder = decoder = started(BatchDecoder(), 2)
    monkeypatch.setattr(image, "encoded_of", not_here)
    found = list(on_card.stream(folder, on_error="yield", workers=4))
    monkeypatch.undo()
    assert_same(found, expected)
    assert sum(library_of_host.batches) >= 8
    library_of_host.break_at = len(library_of_host.batches) + 1
    found = list(on_card.stream(folder, on_error="yield", workers=4))
    assert_same(found, expected)
    assert not on_card._device._decoders[0].is_usable
    assert_same(list(on_card.stream(folder, on_error="yield", workers=4)), expected)
    gc.collect()
    assert not decoder._team.segments.alive
    on_card._runs.close()


def not_here(source: object) -> None:
    if str(source)[-5:] in ("e.jpg", "d.png", "a.jpg"):
        raise AssertionError(f"{source!r} was read by a thread")


def test_pictures_in_any_form_give_the_same_results(detectors: Pair, folder: Path) -> None:
    path, content = folder / "b turned.jpg", (folder / "e.jpg").read_bytes()
    given: list[Callable[[], Any]] = [
        lambda: str(path),
        lambda: path,
        lambda: content,
        lambda: bytearray(content),
        lambda: BytesIO(content),
        lambda: Image.open(path),
        lambda: by_pillow(content),
    ]
    on_card, on_cpu = detectors
    expected = [on_cpu(make()) for make in given]
    assert_same([on_card(make()) for make in given], expected)
    assert_same(on_card([make() for make in given]), expected)
    assert_same(list(on_card.stream([make() for make in given])), expected)


def test_without_orientation_pictures_stay_as_they_are_stored(
    host: HostDevice, tiny_detector: Any, detectors: Pair, folder: Path
) -> None:
    on_card, on_cpu = detectors
    for each in detectors:
        each._runs._intake = each._intake = each._intake.__class__(
            **{**each._intake.__dict__, "orient": False}
        )
    names = sorted(folder.glob("*rr*.jpg")) + sorted(folder.glob("*turned*"))
    assert_same(list(on_card.stream(names)), list(on_cpu.stream(names)))
    assert next(on_card.stream(names)).size == (50, 40)


def test_kept_pictures_are_those_of_the_cpu(
    detectors: Pair, folder: Path, library_of_host: HostNvjpeg
) -> None:
    on_card, on_cpu = detectors
    names = [folder / "a.jpg", folder / "b turned.jpg"]
    pairs = zip(
        on_card.stream(names, keep_pictures=True),
        on_cpu.stream(names, keep_pictures=True),
        strict=True,
    )
    for found, expected in pairs:
        np.testing.assert_array_equal(found.picture.pixels, expected.picture.pixels)
    assert not library_of_host.batches  # the host needs the pixels anyway
    content = (folder / "b turned.jpg").read_bytes()
    found, expected = on_card(content), on_cpu(content)  # bytes cannot be read again
    assert library_of_host.batches == [1]
    np.testing.assert_array_equal(found.picture.pixels, expected.picture.pixels)
    assert found.picture.dpi == expected.picture.dpi
    np.testing.assert_array_equal(found.plot(array="bgr"), expected.plot(array="bgr"))


def test_tiles_are_cut_on_the_host(
    detectors: Pair, folder: Path, library_of_host: HostNvjpeg
) -> None:
    on_card, on_cpu = detectors
    names = [folder / "a.jpg", folder / "e.jpg"]
    expected = list(on_cpu.stream(names, tiles=32))
    assert_same(list(on_card.stream(names, tiles=32)), expected)
    assert not library_of_host.batches


def test_a_failure_in_the_middle_changes_no_result(
    detectors: Pair,
    folder: Path,
    library_of_host: HostNvjpeg,
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_card, on_cpu = detectors
    expected = list(on_cpu.stream(folder, on_error="yield"))
    library_of_host.break_at = 1
    caplog.clear()
    assert_same(list(on_card.stream(folder, on_error="yield")), expected)
    lines = [each.getMessage() for each in caplog.records if "decode: gpu" in each.getMessage()]
    assert len(lines) == 1


@pytest.mark.slow
def test_streams_may_be_left_and_memory_comes_back(
    detectors: Pair, folder: Path, host: HostDevice
) -> None:
    on_card, _ = detectors
    names = [folder / "a.jpg", folder / "o.jpg"] * 6
    list(on_card.stream(names))
    before = len(host.context.driver.live)
    for _ in range(3):
        stream = on_card.stream(names)
        next(stream)
        stream.close()
        list(on_card.stream(names))
    gc.collect()
    blocks = jpeg_decoder._UNITS + SLOTS  # in flight at most
    assert len(host.context.driver.live) <= before + blocks


def test_a_run_says_how_many_were_decoded_where(
    detectors: Pair, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_card, _ = detectors
    list(on_card.stream([folder / "a.jpg", folder / "l wide.jpg"]))
    with caplog.at_level(logging.INFO, "engine"):
        on_card.close()
    assert "host: decoded 1 JPEGs; the CPU decoded 1 others" in caplog.messages


# ---------------------------------------------------------------- a real card


@pytest.mark.cuda
@pytest.mark.parametrize("subsampling", [0, 1, 2, "grey"])
def test_the_engine_of_a_card_decodes_as_pillow_does(subsampling: Any) -> None:
    kind = {"mode": "L"} if subsampling == "grey" else {"subsampling": subsampling}
    sizes = [(640, 427), (333, 251), (17, 33), (1, 1), (300, 1)]
    contents = [jpeg(size, seed, quality=90, **kind) for seed, size in enumerate(sizes)]
    with closing(open_or_skip(lambda: CudaDevice(0))) as device:
        try:
            decoder = device.open_decoder()
        except DeviceError as error:  # neither the library nor the engine is required
            pytest.skip(str(error))
        jpegs = plain(*contents)
        found = decoder.decode(jpegs)
        context = device._context
        for content, each, there in zip(contents, jpegs, found, strict=True):
            got = np.empty((each.height, each.width, 3), np.uint8)
            assert there.row_step == each.width * 3
            context.run(partial(context.driver.memcpy_dtoh, got, there.pointer))
            assert np.abs(got.astype(int) - by_pillow(content)).max() <= 2
        assert decoder.decode(plain(jpeg(), jpeg((40_000, 1))))[1] is None
        assert decoder.is_usable
