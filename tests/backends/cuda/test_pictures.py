"""Pictures scaled by the kernel to the last bit as NumPy does it, in runs that begin ahead."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import ref

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.base import DetectionSettings, Device, DevicePixels, Placed
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.multi_device import MultiDevice
from engine.backends.cuda.runtime import picture_staging
from engine.backends.cuda.runtime.device_program import SLOTS
from engine.darknet import cfg, weights
from engine.darknet import graph as network_graph
from engine.darknet.lower import lower
from engine.errors import EngineError, InputError
from engine.passes import optimise
from engine.plan.build import Plan, PlanBuilder
from engine.plan.shapes import Shape
from engine.vision.boxes import Suppression
from engine.vision.image import Picture
from engine.vision.orientation import Layout, upright
from engine.vision.resize import Placement, scale_into
from tests.backends.cuda.cards import CARDS, open_card
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.lanes import slow_except
from tests.pictures import ODD_SIZES

Array = NDArray[Any]

SIZES = [
    *ODD_SIZES,
    ((40, 800), (10, 320)),  # darknet's bottom row is black
    ((2048, 30), (64, 19)),
    ((100, 33), (32, 32)),  # an odd margin in a letterbox
]
KINDS = ("stretch", "letterbox", "crop")


@pytest.fixture(scope="module", params=CARDS)
def device(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    with open_card(request.param) as opened:
        yield opened


def random_pixels(size: tuple[int, int], channels: int = 3, seed: int = 0) -> Array:
    width, height = size
    shape = (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def placed(
    pixels: Array, network: tuple[int, int], kind: Any = "stretch", **options: Any
) -> Placed:
    size = pixels.shape[1], pixels.shape[0]
    return Placed(pixels, Placement(size, network, kind), **options)


def on_the_cpu(each: Placed) -> Array:
    width, height = each.placement.network
    row = np.empty((each.pixels.shape[2], height, width), np.float32)
    scale_into(each.pixels, each.placement, row, exact=each.exact)
    return row


def passing(network: tuple[int, int], channels: int = 3) -> Plan:
    """A network that gives back what comes in."""
    width, height = network
    builder = PlanBuilder(Shape(channels, height, width))
    return builder.build((builder.source,), (builder.source,))


def rows_of(device: Device, batch: list[Placed], **options: Any) -> Array:
    network, channels = batch[0].placement.network, batch[0].pixels.shape[2]
    program = device.compile(passing(network, channels), batch=len(batch), **options)
    rows = program.start_forward(batch).result()[0]
    program.close()
    return rows


# ---------------------------------------------------------------- to the last bit


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("channels", slow_except([3], [1, 3, 4]))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "network"), SIZES)
def test_rows_are_those_of_the_cpu_to_the_last_bit(
    device: CudaDevice,
    size: tuple[int, int],
    network: tuple[int, int],
    kind: str,
    channels: int,
    exact: bool,
) -> None:
    batch = [placed(random_pixels(size, channels), network, kind, exact=exact)]
    np.testing.assert_array_equal(rows_of(device, batch)[0], on_the_cpu(batch[0]))


def test_every_byte_becomes_what_it_is_divided_by_255(device: CudaDevice) -> None:
    every = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    got = rows_of(device, [placed(every, (16, 16))])
    np.testing.assert_array_equal(got.ravel(), np.arange(256, dtype=np.float32) / np.float32(255))


def test_pictures_of_a_batch_may_differ_in_everything(device: CudaDevice) -> None:
    sizes = [size for size, _ in SIZES]
    batch = [
        placed(random_pixels(size, seed=number), (40, 24), KINDS[number % 3], exact=number % 2 == 0)
        for number, size in enumerate(sizes)
    ]
    for row, each in zip(rows_of(device, batch), batch, strict=True):
        np.testing.assert_array_equal(row, on_the_cpu(each))


@pytest.mark.parametrize("kind", KINDS)
def test_halves_are_the_rounded_floats(device: CudaDevice, kind: str) -> None:
    batch = [placed(random_pixels((50, 37)), (32, 32), kind)]
    expected = on_the_cpu(batch[0]).astype(np.float16)
    np.testing.assert_array_equal(rows_of(device, batch, precision="float16")[0], expected)


def test_pixels_may_lie_in_memory_in_any_way(device: CudaDevice) -> None:
    pixels = random_pixels((50, 37))[::-1, ::2]
    assert not pixels.flags.c_contiguous
    batch = [placed(pixels, (32, 32))]
    np.testing.assert_array_equal(rows_of(device, batch)[0], on_the_cpu(batch[0]))


# ---------------------------------------------------------------- already on the device


class Unreadable(Picture):
    def __init__(self) -> None:
        """Have no pixels on the host."""

    @property
    def pixels(self) -> Array:  # type: ignore[override]
        raise AssertionError("pixels of the device were wanted on the host")


@contextmanager
def on_device(
    device: CudaDevice, stored: Array, *, orientation: int = 1, gap: int = 0, picture: Any = None
) -> Iterator[DevicePixels]:
    """Lend pixels in memory of the device, whose rows are `gap` bytes apart."""
    height, width, channels = stored.shape
    rows = np.full((height, width * channels + gap), 0xEE, np.uint8)
    rows[:, : width * channels] = stored.reshape(height, -1)
    pointer, free = device.allocate(rows.nbytes)
    context = device._context
    context.run(lambda: context.driver.memcpy_htod(pointer, rows))
    layout = Layout(height, width, rows.shape[1], channels).upright(orientation)
    shape = layout.height, layout.width, channels
    steps = layout.row_step, layout.column_step
    yield DevicePixels(shape, pointer + layout.first, *steps, None, picture or Unreadable())
    free()


def placed_there(
    pixels: DevicePixels, network: tuple[int, int], kind: Any = "stretch", **options: Any
) -> Placed:
    height, width, _ = pixels.shape
    return Placed(pixels, Placement((width, height), network, kind), **options)


@pytest.mark.parametrize("channels", slow_except([3], [1, 4]))
@pytest.mark.parametrize("kind", slow_except(["letterbox"], ["stretch", "crop"]))
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_on_the_device_may_have_gaps_and_lie_in_any_way(
    device: CudaDevice, orientation: int, kind: str, channels: int
) -> None:
    stored = random_pixels((50, 37), channels)
    expected = placed(upright(stored, orientation), (32, 24), kind)
    with on_device(device, stored, orientation=orientation, gap=13) as pixels:
        row = rows_of(device, [placed_there(pixels, (32, 24), kind)])[0]
    np.testing.assert_array_equal(row, on_the_cpu(expected))


def test_pictures_on_the_device_and_others_share_a_batch(device: CudaDevice) -> None:
    stored = [random_pixels((50, 37), seed=seed) for seed in range(4)]
    others = [placed(random_pixels(size, seed=9), (24, 24)) for size in ((60, 5), (37, 50))]
    with ExitStack() as stack:
        there = [stack.enter_context(on_device(device, each)) for each in stored]
        ours = [placed_there(each, (24, 24)) for each in there]
        program = device.compile(passing((24, 24)), batch=6)
        batch = [ours[0], others[0], ours[1], ours[2], others[1], ours[3]]
        for _ in range(3):  # step by step, recorded, and replayed
            rows = program.start_forward(batch).result()[0]
            expected = [placed(each, (24, 24)) for each in stored]
            for number, other in ((1, others[0]), (4, others[1])):
                expected.insert(number, other)
            assert_is((rows,), expected)
        (alone,) = program.start_forward(ours).result()
        program.close()
    assert_is((alone,), [placed(each, (24, 24)) for each in stored])


def test_pictures_on_the_device_live_until_their_run_has_been_read(host: HostDevice) -> None:
    class Owner: ...

    owner = Owner()
    is_alive = ref(owner)
    with on_device(host, random_pixels((8, 8))) as pixels:
        program = host.compile(passing((8, 8)))
        placing = placed_there(pixels._replace(owner=owner), (8, 8))
        ticket = program.start_forward([placing])
        del owner, placing
        gc.collect()
        assert is_alive() is not None
        ticket.result()
        gc.collect()
        assert is_alive() is None
        program.close()


def test_pictures_on_the_device_are_read_back_where_the_cpu_must_scale(
    device: CudaDevice,
) -> None:
    stored = random_pixels((12, 9))
    floats = np.random.default_rng(0).random((37, 50, 3), dtype=np.float32)
    with on_device(device, stored, picture=Picture(stored)) as pixels:
        batch = [placed_there(pixels, (32, 32)), placed(floats, (32, 32))]
        rows = rows_of(device, batch)
    assert_is((rows,), [placed(stored, (32, 32)), placed(floats, (32, 32))])


# ---------------------------------------------------------------- tiles


def tiles_of(whole: Array, network: tuple[int, int] = (16, 16)) -> list[Placed]:
    """Return a picture and overlapping parts of it, as with tiles: views of one array."""
    width, height = whole.shape[1], whole.shape[0]
    areas = [(0, 0, width, height)]
    areas += [(x, y, x + 40, y + 30) for y in (0, 20, height - 30) for x in (0, 25, width - 40)]
    areas.append((0, 5, width, 30))  # contiguous, too
    return [placed(whole[top:bottom, left:right], network) for left, top, right, bottom in areas]


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_of_a_picture_are_uploaded_as_the_picture_once(
    device: CudaDevice, channels: int
) -> None:
    frames = np.random.default_rng(1).integers(0, 256, (2, 70, 90, channels), np.uint8)
    other = random_pixels((33, 21), channels)
    batch = [placed(other, (16, 16)), *tiles_of(frames[1])]
    arrangement = picture_staging.arrange(batch)
    assert arrangement is not None
    assert [each.size for each in arrangement.arrays] == [other.size, frames[1].size]
    assert arrangement.size < other.size + frames[1].size + 32
    rows = rows_of(device, batch)
    assert_is((rows,), batch)


def test_few_tiles_of_a_large_picture_are_uploaded_by_themselves() -> None:
    whole = random_pixels((4000, 30))
    batch = [placed(whole[:, left : left + 20], (16, 16)) for left in (0, 3900)]
    arrangement = picture_staging.arrange(batch)
    assert arrangement is not None
    assert [each.shape for each in arrangement.arrays] == [(30, 20, 3)] * 2


@pytest.mark.parametrize(
    "view",
    [lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x[..., :3], lambda x: x.swapaxes(0, 1)],
)
def test_views_of_other_kinds_are_uploaded_by_themselves(device: CudaDevice, view: Any) -> None:
    whole = view(random_pixels((50, 50), 4))
    batch = [placed(whole, (16, 16)), placed(whole[3:, 4:], (16, 16))]
    arrangement = picture_staging.arrange(batch)
    assert arrangement is not None
    assert len(arrangement.arrays) == 2
    assert_is((rows_of(device, batch),), batch)


def test_tiles_of_a_pinned_picture_are_lent(device: CudaDevice) -> None:
    frames = np.random.default_rng(2).integers(0, 256, (2, 70, 90, 3), np.uint8)
    batch = tiles_of(frames[1])
    program = device.compile(passing((16, 16)), batch=len(batch))
    program.pin(frames)
    arrangement = picture_staging.arrange(batch)
    assert arrangement is not None
    assert program._context.pinned_memory.contains(arrangement.arrays)
    assert_is((program.start_forward(batch).result()[0],), batch)
    program.close()


# ---------------------------------------------------------------- room


def test_what_are_no_bytes_is_scaled_on_the_cpu(device: CudaDevice) -> None:
    floats = np.random.default_rng(0).random((37, 50, 3), dtype=np.float32)
    batch = [placed(floats, (32, 32), "letterbox"), placed(random_pixels((9, 9)), (32, 32))]
    for row, each in zip(rows_of(device, batch), batch, strict=True):
        np.testing.assert_array_equal(row, on_the_cpu(each))


def test_what_is_too_much_is_scaled_on_the_cpu(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_staging, "MOST_BYTES", 5_000)
    program = device.compile(passing((16, 16)), batch=2)
    most = program.memory.activations + 2 * 3 * 16 * 16 * 4  # the rows of a run
    for size in ((90, 90), (20, 20), (99, 99)):
        batch = [placed(random_pixels(size, seed=seed), (16, 16)) for seed in range(2)]
        rows = program.start_forward(batch).result()[0]
        for row, each in zip(rows, batch, strict=True):
            np.testing.assert_array_equal(row, on_the_cpu(each))
    assert program.memory.activations <= most
    program.close()


def test_memory_grows_with_the_pictures_and_then_stays(device: CudaDevice) -> None:
    program = device.compile(passing((16, 16)))
    totals = [program.memory.total]
    for size in [(8, 8), (16, 16), *[(64, 64)] * SLOTS, (32, 32), (64, 64)]:
        batch = [placed(random_pixels(size), (16, 16))]
        np.testing.assert_array_equal(
            program.start_forward(batch).result()[0][0], on_the_cpu(batch[0])
        )
        totals.append(program.memory.total)
    assert totals[0] == totals[1] == totals[2]
    assert totals[2] < totals[3]
    assert len(set(totals[2 + SLOTS :])) == 1
    program.close()


def never(size: int) -> None:
    raise AssertionError(f"{size} bytes were sent ahead")


@pytest.mark.parametrize("copiers", [1, 2, 4, 20])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_many_bytes_are_copied_by_several_threads_in_the_right_places(
    copiers: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_staging, "_COPIERS", copiers)
    monkeypatch.setattr(picture_staging, "_WORTH_A_THREAD", 1 << 15)
    batch = [placed(random_pixels((300 + 7 * n, 211), seed=n), (8, 8)) for n in range(count)]
    arrangement = picture_staging.arrange(batch)
    assert arrangement is not None
    assert arrangement.size > 2 * picture_staging._WORTH_A_THREAD
    out = np.zeros(arrangement.size, np.uint8)
    copier = picture_staging.Copier()
    copier.copy([each.pixels for each in batch], arrangement.starts, out, never)
    copier.close()
    for start, each in zip(arrangement.starts, batch, strict=True):
        assert start % 16 == 0
        np.testing.assert_array_equal(
            out[start : start + each.pixels.size], each.pixels.reshape(-1)
        )


@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("heights", [(4, 4, 4), (4, 5, 3), (4, 4, 5), (4,)])
def test_arrays_are_copied_alike_or_not_close_together_or_not(
    heights: tuple[int, ...], kind: type, gap: int
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(1, 256, (height, 7, 3)).astype(kind) for height in heights]
    starts = [sum(each.size + gap for each in arrays[:number]) for number in range(len(arrays))]
    out = np.zeros(starts[-1] + arrays[-1].size + 3, kind)
    expected = out.copy()
    for start, each in zip(starts, arrays, strict=True):
        expected[start : start + each.size] = each.ravel()
    picture_staging._copy(arrays, starts, out)
    np.testing.assert_array_equal(out, expected)


def test_callers_at_the_same_time_copy_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_staging, "_WORTH_A_THREAD", 1 << 10)
    copy, all_copy = picture_staging._copy, threading.Barrier(4, timeout=10)
    copying: set[int] = set()

    def noted(*arguments: Any) -> None:
        copying.add(threading.get_ident())
        all_copy.wait()
        copy(*arguments)

    monkeypatch.setattr(picture_staging, "_copy", noted)
    monkeypatch.setattr(picture_staging, "_under_way", [None])  # of another card
    pictures = [random_pixels((64, 64), seed=seed) for seed in range(4)]
    outs = [np.zeros(each.size, np.uint8) for each in pictures]
    copier = picture_staging.Copier()

    def call(picture: Array, out: Array) -> int:
        copier.copy([picture], [0], out, never)
        return threading.get_ident()

    with ThreadPoolExecutor(4) as callers:
        assert set(callers.map(call, pictures, outs)) == copying
    copier.close()
    assert picture_staging._under_way == [None]
    for picture, out in zip(pictures, outs, strict=True):
        np.testing.assert_array_equal(out, picture.ravel())


@pytest.mark.parametrize(
    "shapes",
    [[(60, 50, 3)], [(41, 30, 3)] * 2, [(3, 40, 40), (9, 9, 1), (30, 30, 3)], [(2, 50, 50)]],
)
def test_what_goes_ahead_is_ready_by_then_and_is_not_all(
    shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_staging, "_WORTH_TWO_WAYS", 4_000)
    random = np.random.default_rng(0)
    sources = [random.random(shape, np.float32) for shape in shapes]
    starts = [0, *np.cumsum([each.size for each in sources[:-1]]).tolist()]
    expected = np.concatenate([each.reshape(-1) for each in sources])
    out = np.zeros_like(expected)
    sent = []

    def send(size: int) -> None:
        sent.append(size)
        np.testing.assert_array_equal(out[: size // 4], expected[: size // 4])

    picture_staging.Copier().copy(sources, starts, out, send)
    np.testing.assert_array_equal(out, expected)
    assert len(sent) == 1
    assert 0 < sent[0] < out.nbytes


@pytest.mark.parametrize("size", [(33, 10), (900, 1)])
def test_what_is_little_or_one_row_goes_at_once(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_staging, "_WORTH_TWO_WAYS", 1_000)
    pixels = random_pixels(size)
    out = np.zeros(pixels.size, np.uint8)
    picture_staging.Copier().copy([pixels], [0], out, never)
    np.testing.assert_array_equal(out, pixels.reshape(-1))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([], "images: expected 1 to 2 rows, got 0"),
        ([((4, 4), 3, (8, 8))] * 3, "images: expected 1 to 2 rows, got 3"),
        ([((4, 4), 1, (8, 8))], "expected 3 channels for 8 x 8, got 1 for 8 x 8"),
        ([((4, 4), 3, (9, 8))], "expected 3 channels for 8 x 8, got 3 for 9 x 8"),
    ],
)
def test_pictures_that_do_not_fit_are_refused(
    device: CudaDevice, batch: list[Any], message: str
) -> None:
    program = device.compile(passing((8, 8)), batch=2)
    given = [placed(random_pixels(size, channels), network) for size, channels, network in batch]
    with pytest.raises(InputError, match=message):
        program.start_forward(given)
    program.close()


# ---------------------------------------------------------------- runs ahead of others


def batches(count: int, rows: int = 2) -> list[list[Placed]]:
    return [
        [placed(random_pixels((20, 30), seed=number * rows + row), (16, 16)) for row in range(rows)]
        for number in range(count)
    ]


def assert_is(answer: tuple[Array, ...], batch: list[Placed]) -> None:
    for row, each in zip(answer[0], batch, strict=True):
        np.testing.assert_array_equal(row, on_the_cpu(each))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]])
def test_tickets_may_be_asked_in_any_order(device: CudaDevice, order: list[int]) -> None:
    program = device.compile(passing((16, 16)), batch=2)
    given = batches(6)
    tickets = [program.start_forward(batch) for batch in given]
    for number in order:
        assert_is(tickets[number].result(), given[number])
        assert_is(tickets[number].result(), given[number])
    program.close()


def test_pictures_may_change_once_their_run_has_begun(device: CudaDevice) -> None:
    program = device.compile(passing((16, 16)), batch=2)
    given = batches(2)
    expected = [[on_the_cpu(each) for each in batch] for batch in given]
    tickets = []
    for batch in given:
        tickets.append(program.start_forward(batch))
        for each in batch:
            each.pixels.fill(0)
    for ticket, rows in zip(tickets, expected, strict=True):
        np.testing.assert_array_equal(ticket.result()[0], rows)
    program.close()


def test_forgotten_tickets_keep_nobody_waiting(device: CudaDevice) -> None:
    program = device.compile(passing((16, 16)), batch=2)
    given = batches(5)
    for batch in given:
        program.start_forward(batch)
    images = np.random.default_rng(0).random((2, 3, 16, 16), dtype=np.float32)
    np.testing.assert_array_equal(program.forward(images)[0], images)
    program.close()


def test_a_ticket_outlives_its_program(device: CudaDevice) -> None:
    program = device.compile(passing((16, 16)), batch=2)
    (given,) = batches(1)
    ticket = program.start_forward(given)
    program.close()
    assert_is(ticket.result(), given)
    with pytest.raises(EngineError, match="program: closed"):
        program.start_forward(given)


def test_threads_that_start_and_wait_get_their_own_answers(device: CudaDevice) -> None:
    program = device.compile(passing((16, 16)), batch=2)
    given = batches(8)
    wrong = []

    def ask(number: int) -> None:
        for _ in range(6):
            tickets = [program.start_forward(given[each % 8]) for each in (number, number + 1)]
            for ticket, each in zip(reversed(tickets), (number + 1, number), strict=True):
                try:
                    assert_is(ticket.result(), given[each % 8])
                except AssertionError as error:
                    wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    program.close()


# ---------------------------------------------------------------- boxes


@pytest.fixture
def detector(tiny_detector: Any) -> Plan:
    network = network_graph.build(cfg.read(tiny_detector.cfg))
    return lower(network, weights.load(tiny_detector.weights, network))


def street(plan: Plan, rows: int, seed: int = 0) -> list[Placed]:
    shape = plan.source.shape
    return [
        placed(random_pixels((50 + row, 40), seed=seed + row), (shape.width, shape.height))
        for row in range(rows)
    ]


def images_of(batch: list[Placed]) -> Array:
    return np.stack([on_the_cpu(each) for each in batch])


def assert_same_rows(found: list[Array], expected: list[Array]) -> None:
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("has_graph", [True, False])
def test_boxes_are_those_of_the_same_images(
    device: CudaDevice, detector: Plan, has_graph: bool
) -> None:
    plan = optimise(detector, device.passes)
    program = device.compile(plan, batch=3, graph=has_graph)
    for seed in range(4):
        for rows in (3, 1):
            batch = street(plan, rows, seed)
            found = program.start_detect(batch, threshold=0.3).result()
            assert sum(map(len, found)) > 0
            assert_same_rows(found, program.detect(images_of(batch), threshold=0.3))
    program.close()


def test_more_candidates_than_are_copied_at_once_survive_later_runs(
    device: CudaDevice, detector: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.backends.cuda.runtime.detection_buffer.COPIED_AT_ONCE", 2)
    program = device.compile(detector, batch=2)
    given = [street(detector, 2, seed) for seed in (0, 7, 14)]
    tickets = [program.start_detect(batch, threshold=0.0) for batch in given]
    for ticket, batch in zip(tickets, given, strict=True):
        assert sum(map(len, ticket.result())) > 4
        assert_same_rows(ticket.result(), program.detect(images_of(batch), threshold=0.0))
    program.close()


def test_a_threshold_belongs_to_its_run(device: CudaDevice, detector: Plan) -> None:
    program = device.compile(detector)
    batch = street(detector, 1)
    tickets = [program.start_detect(batch, threshold=each) for each in (0.0, 1.0, 0.0)]
    counts = [len(ticket.result()[0]) for ticket in tickets]
    assert counts == [counts[0], 0, counts[0]]
    assert counts[0] > 0
    program.close()


# ---------------------------------------------------------------- several cards


class HostDevices(MultiDevice):
    def __init__(self, count: int) -> None:
        self.devices = [HostDevice(name=f"host:{index}") for index in range(count)]
        self.name = ",".join(device.name for device in self.devices)


@needs_gxx
@pytest.mark.parametrize("rows", range(1, 8))
def test_pictures_are_spread_over_cards_and_their_order_kept(rows: int, detector: Plan) -> None:
    several = HostDevices(3)
    program = several.compile(detector, batch=7, graph=False)
    batch = street(detector, rows)
    own = [DetectionSettings(0.3 + 0.3 * (each % 3 == 0), Suppression()) for each in range(rows)]
    found, outputs = program.submit(batch, own), program.submit_forward(batch)
    one = HostDevice().compile(detector, batch=7, graph=False)
    for boxes, expected in zip(found.result(), one.submit(batch, own).result(), strict=True):
        np.testing.assert_allclose(boxes.xywh, expected.xywh, atol=1e-6)
        np.testing.assert_array_equal(boxes.class_ids, expected.class_ids)
    for left, right in zip(outputs.result(), program.forward(images_of(batch)), strict=True):
        np.testing.assert_array_equal(left, right)
    assert {"network", "suppress"} <= found.milliseconds.keys()
    one.close()
    several.close()


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
@pytest.mark.parametrize("fails", ["mem_alloc", "pagelocked_empty"])
def test_what_was_freed_for_more_that_did_not_come_is_not_used(
    fails: str, kind: type[np.generic], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = HostDevice(runs_kernels=False)
    program = device.compile(passing((16, 16)), graph=False)
    with monkeypatch.context() as patch:
        patch.setattr(device.context.driver, fails, refuse)
        with pytest.raises(MemoryError):
            program.start_forward([placed(random_pixels((64, 64)), (16, 16))])
    slot = program._slots.take()
    assert slot.room == 0
    program._slots.give(slot)
    if kind is np.float32:
        program.forward(np.zeros((1, 3, 16, 16), kind))
    program.start_forward([placed(np.zeros((16, 16, 3), kind), (16, 16))]).result()
    held = {int(block) for block in device.context.driver.live}
    assert {slot.block, slot.staged_at} <= held
    device.close()


def refuse(*arguments: object) -> None:
    raise MemoryError
