"""Suppression on the device gives what vision.postprocess gives, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.base import Placed
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime import nms_buffer
from engine.backends.cuda.runtime.program import CudaProgram
from engine.errors import EngineError
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Tensor, YoloHead
from engine.plan.shapes import Shape
from engine.vision.boxes import NOT_NUMBERS, Boxes, Suppression
from engine.vision.postprocess import postprocess_batch
from engine.vision.resize import Placement
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice

Array = NDArray[Any]

WIDTH, HEIGHT, CLASSES = 6, 5, 3
NETWORK = (96, 80)
ANCHORS = ((20.0, 24.0), (33.0, 27.0))


def plan_of(*, width: int = WIDTH, height: int = HEIGHT, **options: Any) -> Plan:
    """A head that reads the picture itself: its bytes are boxes and scores."""
    options = {"anchors": ANCHORS, "classes": CLASSES, **options}
    channels = len(options["anchors"]) * (5 + options["classes"])
    source = Tensor(1, Shape(channels, height, width))
    head = YoloHead(source, network=NETWORK, **options)
    return Plan(source, (), (source,), (source,), heads=(head,))


def pictures(plan: Plan, count: int, *, kind: str = "stretch", seed: int = 0) -> list[Placed]:
    """Scores that are bytes, so that many are equal."""
    channels, height, width = plan.source.shape.sides
    random = np.random.default_rng(seed)
    given = []
    for number in range(count):
        size = (width, height) if kind == "stretch" else (width + 3 * number, height + number)
        pixels = random.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
        given.append(Placed(pixels, Placement(size, (width, height), kind)))  # type: ignore[arg-type]
    return given


def expected(
    program: CudaProgram, given: Sequence[Placed], how: Suppression, threshold: float
) -> list[Boxes]:
    rows = program.start_detect(given, threshold=threshold).result()
    return postprocess_batch(rows, [each.placement for each in given], how)


def check(program: CudaProgram, given: Sequence[Placed], how: Suppression, threshold: float) -> int:
    """How many boxes are left."""
    found = program.start_boxes(given, how, threshold=threshold).result()
    wanted = expected(program, given, how, threshold)
    assert len(found) == len(wanted) == len(given)
    for left, right in zip(found, wanted, strict=True):
        for name in ("xywh", "scores", "class_ids", "objectness"):
            got, want = getattr(left, name), getattr(right, name)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    return sum(map(len, found))


KINDS = [
    Suppression(),
    Suppression(0.2, across_classes=True),
    Suppression(0.0),
    Suppression(0.45, "cornersnms"),
    Suppression(0.3, "greedynms"),
    Suppression(0.3, "diounms", beta=0.6),
    Suppression(0.1, "diounms", beta=1.7, across_classes=True),
    Suppression(-0.2, "diounms", beta=0.3),
]


@pytest.mark.parametrize("kind", ["stretch", "letterbox"])
@pytest.mark.parametrize("how", KINDS, ids=str)
def test_survivors_are_those_of_the_cpu(card: CudaDevice, how: Suppression, kind: str) -> None:
    plan = plan_of()
    program = card.compile(plan, batch=4)
    counts = []
    for threshold in (0.3, 0.1):
        for seed, count in enumerate((4, 3, 1)):  # by op, recorded, replayed
            given = pictures(plan, count, kind=kind, seed=seed)
            counts.append(check(program, given, how, threshold))
    candidates = sum(map(len, program.start_detect(given, threshold=0.1).result()))
    assert 0 < counts[-1] < candidates * CLASSES
    assert len(set(counts)) > 3


def test_equal_boxes_of_equal_scores_leave_the_first(card: CudaDevice) -> None:
    plan = plan_of(anchors=(ANCHORS[0], ANCHORS[0]))
    program = card.compile(plan)
    channels, height, width = plan.source.shape.sides
    pixels = np.full((height, width, channels), 200, np.uint8)
    given = [Placed(pixels, Placement((width, height), (width, height)))]
    for how in (Suppression(0.99), Suppression(0.99, across_classes=True)):
        left = check(program, given, how, 0.1)
        assert left == height * width * (1 if how.across_classes else CLASSES)


def test_a_recording_reads_the_choice_anew(card: CudaDevice) -> None:
    plan = plan_of()
    program = card.compile(plan)
    given = pictures(plan, 1)
    counts = {check(program, given, how, 0.2) for how in KINDS for _ in range(2)}
    assert len(counts) > 4


def test_heads_of_several_kinds_compete(card: CudaDevice) -> None:
    first = plan_of()
    head = YoloHead(first.source, 2, ((30.0, 10.0), (40.0, 40.0)), NETWORK)
    plan = Plan(first.source, (), first.layers, first.outputs, heads=(*first.heads, head))
    check(card.compile(plan, batch=2), pictures(plan, 2), Suppression(0.3), 0.2)


def test_survivors_that_seldom_are_so_many_come_back_too(card: CudaDevice) -> None:
    plan = plan_of(width=13, height=9)
    program = card.compile(plan, batch=2)
    given = pictures(plan, 2)
    for how in (Suppression(1.0), Suppression(0.7)):
        assert check(program, given, how, 0.1) > 2 * nms_buffer.NEAR
    assert program._crowded == 0


def test_in_a_crowd_candidates_come_back(card: CudaDevice) -> None:
    plan = plan_of(width=26, height=20, classes=2)
    program = card.compile(plan, batch=2)
    given = pictures(plan, 2)
    first, second = (program.start_boxes(given, KINDS[0], threshold=0.1) for _ in range(2))
    for ticket in (first, second):
        assert len(ticket.result()[0]) > 0
    assert program._crowded > 0
    check(program, given, KINDS[0], 0.1)
    assert check(program, given[:1], KINDS[0], 0.9) > 0  # by candidates, for a while
    program._crowded = 0
    assert check(program, given[:1], KINDS[0], 0.9) > 0


def test_more_scores_than_can_be_counted_are_left_to_the_host(
    card: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    scores = 2 * len(ANCHORS) * WIDTH * HEIGHT * CLASSES
    for most, is_vast in ((scores, False), (scores - 1, True)):
        monkeypatch.setattr(nms_buffer, "MOST_LISTED", most)
        program = card.compile(plan, batch=2)
        assert program._is_vast == is_vast
        check(program, pictures(plan, 2), KINDS[0], 0.3)


def test_boxes_that_are_no_numbers_do_not_compete(card: CudaDevice) -> None:
    plan = plan_of(anchors=(ANCHORS[0], (1e38, 1e38)))
    program = card.compile(plan)
    given = pictures(plan, 1)
    assert check(program, given, Suppression(0.3), 0.2) > 0


@pytest.mark.parametrize("factor", [0, 1], ids=["nan", "infinity"])
def test_a_score_that_is_not_finite_is_left_to_the_host(card: CudaDevice, factor: float) -> None:
    """The first class becomes infinite where its byte is not 0, and then NaN if multiplied by 0."""
    channels = len(ANCHORS) * (5 + CLASSES)
    builder = PlanBuilder(Shape(channels, HEIGHT, WIDTH))
    made = builder.source
    for number, value in enumerate((3e38, 3e38, factor)):
        weight = np.eye(channels, dtype=np.float32)[:, :, None, None]
        weight[5, 5] = value
        constant = builder.constant(str(number), weight)
        made = builder.emit(ops.Conv2d(builder.tensor(made.shape), made, constant))
    builder.head(YoloHead(made, CLASSES, ANCHORS, NETWORK))
    plan = builder.build((made,), (made,))
    program = card.compile(plan, batch=2)
    whole, broken = pictures(plan, 2)
    whole.pixels[..., 5] = broken.pixels[..., 5] = 0
    broken.pixels[2, 3, 4:6] = 255
    for given in ([whole, broken], [broken]):
        *others, last = program.start_boxes(given, KINDS[0], threshold=0.1).result()
        assert last is NOT_NUMBERS
        assert all(map(len, others))
    program._crowded = 0
    assert check(program, [whole], KINDS[0], 0.1) > 0


def test_nothing_is_left_of_nothing(card: CudaDevice) -> None:
    plan = plan_of()
    program = card.compile(plan, batch=2)
    assert check(program, pictures(plan, 2), Suppression(), 1.0) == 0


@needs_gxx
def test_pictures_that_the_cpu_scales_are_suppressed_there(host: HostDevice) -> None:
    plan = plan_of()
    program = host.compile(plan)
    (given,) = pictures(plan, 1)
    as_floats = Placed(given.pixels.astype(np.float32) / np.float32(255), given.placement)
    assert check(program, [as_floats], Suppression(), 0.2) > 0
    assert "suppress" not in host.context.launched


@needs_gxx
def test_a_run_beyond_float16_is_refused(host: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    program = host.compile(plan, precision="float16")
    given = pictures(plan, 1)
    asked = []

    def refuse(slot: Any, job: Any) -> None:
        asked.append(job)
        raise EngineError("beyond float16")

    monkeypatch.setattr(program, "_is_watched", True)
    monkeypatch.setattr(program, "_examine", refuse)
    program.start_boxes(given, Suppression(), threshold=0.5).result()
    host.context.driver.memcpy_htod(program._device.buffers.found + 4, np.ones(1, np.uint32))
    with pytest.raises(EngineError, match="beyond float16"):
        program.start_boxes(given, Suppression(), threshold=0.5).result()
    assert asked[0].suppresses


def test_what_was_left_of_a_picture_stays_as_it_was_and_holds_no_other_picture() -> None:
    keep, counts = nms_buffer.Keep(8), [3, 0, 1, 96, 2, 5, 7, 20]
    words = np.random.default_rng(0).integers(0, 1 << 20, keep.near_words, np.uint32)
    found = keep.boxes(words, counts)
    first = found[0]
    before = [first.xywh.copy(), first.scores.copy(), first.class_ids.copy()]
    words[:] = 0
    for column, as_it_was in zip((first.xywh, first.scores, first.class_ids), before, strict=True):
        np.testing.assert_array_equal(column, as_it_was)
    assert [len(each) for each in found] == counts
    for each, count in zip(found, counts, strict=True):
        owner = each.xywh
        while owner.base is not None:
            owner = owner.base
        assert owner.nbytes == count * 8 * 4


def test_boxes_outlive_what_comes_back_next_and_hold_one_picture_once_asked() -> None:
    keep, counts = nms_buffer.Keep(2), [3, 1]
    words = np.arange(keep.near_words, dtype=np.uint32)
    first, second = keep.boxes(words, counts)
    expected = words[-nms_buffer.NEAR * 8 :][:4].copy().view(np.float32)
    words[:] = 0
    assert (len(first), len(second)) == (3, 1)
    for _ in range(2):
        np.testing.assert_array_equal(second.xywh[0], expected)
    assert second.xywh.base is not first.xywh.base
    assert second.xywh.base.size == 8
