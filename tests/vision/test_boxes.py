"""Candidates to boxes: letterbox, kinds of NMS, non-finite values."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.vision.boxes import NOT_NUMBERS, Suppression
from engine.vision.nms import suppress
from engine.vision.postprocess import (
    MAX_SCORES,
    postprocess,
    postprocess_batch,
    relative_to_picture,
    sorted_boxes,
)
from engine.vision.resize import Placement
from tests import needs

OPEN = Path(__file__).parents[3] / "shared" / "golden" / "open"
WHOLE = Placement((100, 100), (100, 100))
KINDS = ["default", "greedynms", "diounms", "cornersnms"]


def candidates(*rows):
    return np.array(rows, np.float32)


def random_candidates(count, classes, seed=0, zero=0.5):
    random = np.random.default_rng(seed)
    rows = random.random((count, 5 + classes), dtype=np.float32)
    rows[:, 2:4] = rows[:, 2:4] * 0.4 + 0.02
    rows[:, 5:][random.random((count, classes)) < zero] = 0
    return rows


def overlap_of(a, b, kind, beta):
    """Compute the overlap of one pair in plain Python, after the module's equations."""
    sides = [
        min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        for i in (0, 1)
    ]
    around = [
        max(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        - min(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        for i in (0, 1)
    ]
    common = 0 if min(sides) < 0 else sides[0] * sides[1]
    united = a[2] * a[3] + b[2] * b[3] - common
    ratio = common / united if common and united else 0
    if kind in ("default", "cornersnms"):
        return ratio
    exponent = 0.6 if kind == "greedynms" else beta
    diagonal = around[0] ** 2 + around[1] ** 2
    distance = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
    return ratio if diagonal == 0 else ratio - (distance / diagonal) ** exponent


def suppressed_by_loops(rows, threshold, kind, beta=0.6):
    scores = rows[:, 5:].copy()
    for column in scores.T:
        order = sorted(range(len(column)), key=lambda i: -column[i])
        for place_in_order, i in enumerate(order):
            for j in order[place_in_order + 1 :]:
                if column[i] and column[j]:
                    overlap = overlap_of(rows[i].tolist(), rows[j].tolist(), kind, beta)
                    if overlap > threshold:
                        column[j] = 0
    return {
        (int(c), float(scores[i, c]), *rows[i, :4].tolist()) for i, c in np.argwhere(scores > 0)
    }


def as_set(boxes):
    return {
        (class_id, score, *box)
        for class_id, score, box in zip(
            boxes.class_ids.tolist(), boxes.scores.tolist(), boxes.xywh.tolist(), strict=True
        )
    }


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.45, 1.0])
@pytest.mark.parametrize(("kind", "beta"), [*((kind, 0.6) for kind in KINDS), ("diounms", 1.5)])
def test_nms_agrees_with_the_definition(kind, beta, threshold):
    rows = random_candidates(70, 3)
    got = postprocess(rows, WHOLE, Suppression(threshold, kind, beta))
    assert as_set(got) == suppressed_by_loops(rows, threshold, kind, beta)
    assert (np.diff(got.scores) <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nms_over_many_blocks_agrees_with_the_definition(kind):
    rows = random_candidates(300, 1, zero=0)
    assert as_set(postprocess(rows, WHOLE, Suppression(0.1, kind))) == suppressed_by_loops(
        rows, 0.1, kind
    )


def test_nms_kinds_differ_for_distant_centres():
    rows = candidates([0.4, 0.5, 0.4, 0.4, 1, 0.9], [0.5, 0.5, 0.4, 0.4, 1, 0.8])
    assert len(postprocess(rows, WHOLE, Suppression(0.55, "default"))) == 1
    assert len(postprocess(rows, WHOLE, Suppression(0.55, "cornersnms"))) == 1
    assert len(postprocess(rows, WHOLE, Suppression(0.55, "greedynms"))) == 2
    assert (
        len(postprocess(rows, WHOLE, Suppression(0.55, "greedynms", beta=9))) == 2
    )  # greedynms ignores beta
    assert len(postprocess(rows, WHOLE, Suppression(0.55, "diounms", beta=0.6))) == 2
    assert len(postprocess(rows, WHOLE, Suppression(0.55, "diounms", beta=9))) == 1


def test_overlap_equal_to_the_threshold_is_kept():
    rows = candidates([0.5, 0.5, 0.5, 0.5, 1, 0.9], [0.5, 0.5, 0.5, 0.25, 1, 0.8])
    assert len(postprocess(rows, WHOLE, Suppression(0.5))) == 2
    assert len(postprocess(rows, WHOLE, Suppression(0.499))) == 1


def test_classes_suppress_each_other_only_if_agnostic():
    rows = candidates([0.5, 0.5, 0.4, 0.4, 1, 0.9, 0.3], [0.5, 0.5, 0.4, 0.4, 1, 0, 0.8])
    assert postprocess(rows, WHOLE).class_ids.tolist() == [0, 1]
    assert postprocess(rows, WHOLE).scores.tolist() == pytest.approx([0.9, 0.8])
    assert postprocess(rows, WHOLE, Suppression(across_classes=True)).class_ids.tolist() == [0]


def test_a_box_is_listed_once_for_each_class_it_has():
    got = postprocess(candidates([0.5, 0.5, 0.4, 0.4, 0.9, 0.2, 0, 0.7]), WHOLE)
    assert got.class_ids.tolist() == [2, 0]
    assert got.scores.tolist() == pytest.approx([0.7, 0.2])
    assert got.objectness.tolist() == pytest.approx([0.9, 0.9])


def test_equal_scores_keep_their_order():
    rows = candidates(*([x / 10, 0.5, 0.01, 0.01, 1, 0.5] for x in range(1, 9)))
    np.testing.assert_array_equal(postprocess(rows, WHOLE).xywh[:, 0], rows[:, 0])
    same = np.repeat(rows[:1], 5, axis=0)
    same[:, 4] = np.arange(5)
    assert postprocess(same, WHOLE).objectness.tolist() == [0]


def test_disabled_nms_keeps_every_box():
    rows = np.repeat(random_candidates(1, 1, zero=0), 5, axis=0)
    assert len(postprocess(rows, WHOLE, Suppression(None))) == 5
    assert len(postprocess(rows, WHOLE)) == 1


def test_max_detections_keeps_the_best():
    rows = random_candidates(50, 2, zero=0)
    everything = postprocess(rows, WHOLE)
    assert as_set(postprocess(rows, WHOLE, max_detections=3)) == as_set(everything.take(slice(3)))
    assert len(postprocess(rows, WHOLE, max_detections=0)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Suppression(float("nan")), "nms: threshold: expected a finite number, got nan"),
        (lambda: Suppression(kind="greedynm"), "got 'greedynm'. Did you mean 'greedynms'"),
        (
            lambda: postprocess(candidates([0] * 6), WHOLE, max_detections=-1),
            "expected 0 or more, got -1",
        ),
    ],
)
def test_invalid_settings_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("shape", [(0, 6), (0, 85), (3, 5)])
def test_no_candidates_give_no_boxes(shape):
    got = postprocess(np.zeros(shape, np.float32), Placement((10, 20), (32, 32), "letterbox"))
    assert len(got) == 0
    assert got.xywh.shape == (0, 4)


# ------------------------------------------------------------ placement


def test_letterbox_is_undone_with_odd_margins():
    placement = Placement((100, 30), (32, 32), "letterbox")  # 32 x 9, margins 11 and 12
    box = candidates([0.5, 0.5, 0.5, 0.25, 1, 1])
    x, y, width, height = relative_to_picture(box, placement)[0, :4].tolist()
    assert (x, width) == (0.5, 0.5)
    assert y == pytest.approx((0.5 - 11.5 / 32) / (9 / 32), rel=1e-6)
    assert height == pytest.approx(0.25 * 32 / 9, rel=1e-6)


def test_a_crop_is_undone():
    placement = Placement((200, 100), (50, 50), "crop")  # 100 x 50, the middle 50 columns
    placed = relative_to_picture(candidates([0.5, 0.5, 1, 1, 1, 1]), placement)[0, :4]
    assert placed.tolist() == [0.5, 0.5, 0.5, 1]


def test_stretched_boxes_are_unchanged():
    rows = random_candidates(5, 2)
    np.testing.assert_array_equal(relative_to_picture(rows, Placement((7, 9), (32, 64))), rows)


def test_candidates_are_not_modified():
    rows = random_candidates(40, 2)
    before = rows.copy()
    postprocess(rows, Placement((640, 480), (416, 416), "letterbox"))
    np.testing.assert_array_equal(rows, before)


def golden_sets():
    for path in sorted(OPEN.glob("*/*/boxes.json")):
        case = json.loads((path.parent / "case.json").read_text())
        for i, entry in enumerate(json.loads(path.read_text())):
            if case.get("tier") != "optional" and entry["raw"]:
                yield pytest.param(entry, id=f"{path.parent.name}-{i}")


@needs.shared("golden/open")
@pytest.mark.parametrize("entry", list(golden_sets()))
def test_nms_of_darknets_boxes_gives_darknets_result(entry):
    raw = np.array(entry["raw"], np.float32)
    rows = np.zeros((len(raw), 5 + entry["classes"]), np.float32)
    rows[:, :4], rows[:, 4] = raw[:, 2:6], raw[:, 6]
    rows[np.arange(len(raw)), 5 + raw[:, 0].astype(int)] = raw[:, 1]
    rule = Suppression(entry["nms"], entry["nms_kind"], entry["beta_nms"])
    got = suppress(sorted_boxes(rows), rule)
    expected = np.array(entry["after_nms"], np.float64)
    listed = np.column_stack([got.class_ids, got.scores, got.xywh])
    listed, expected = (each[np.lexsort(each[:, :6].T[::-1])] for each in (listed, expected))
    np.testing.assert_allclose(listed, expected[:, :6], rtol=1e-6)


# ------------------------------------------------------------ hostile numbers


@pytest.mark.parametrize(
    ("column", "value"),
    [(column, value) for column in range(4) for value in (np.nan, np.inf, -np.inf, 3e38)],
)
def test_69_non_finite_rows_are_dropped(column, value):
    rows = random_candidates(6, 1, zero=0)
    rows[2, column] = value
    for placement in (WHOLE, Placement((64, 48), (32, 32), "letterbox")):
        got = postprocess(rows, placement, Suppression(None))
        assert len(got) == 5
        assert np.isfinite(got.xywh).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("classes", [None, [0], [1]])
def test_a_score_that_is_not_finite_leaves_no_boxes_of_its_picture(value, classes):
    rows = random_candidates(6, 2, zero=0)
    broken = rows.copy()
    broken[2, 5] = value
    options = {"classes": classes, "max_detections": 3}
    assert postprocess(broken, WHOLE, **options) is NOT_NUMBERS
    found = postprocess_batch([rows, broken, rows[:0], rows], [WHOLE] * 4, **options)
    assert [each is NOT_NUMBERS for each in found] == [False, True, False, False]
    assert as_set(found[0]) == as_set(found[3]) == as_set(postprocess(rows, WHOLE, **options))
    assert NOT_NUMBERS.select([0], 2) is NOT_NUMBERS
    assert len(NOT_NUMBERS) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_69_boxes_of_zero_and_huge_area(kind):
    huge = float(np.exp(np.float32(60)))
    rows = candidates(
        *([0.5, 0.5, 0, 0, 1, 0.9], [0.5, 0.5, 0, 0, 1, 0.8]),
        *([0.5, 0.5, huge, huge, 1, 0.7], [0.5, 0.5, huge, 0, 1, 0.6], [0.5, 0.5, -1, 1, 1, 0.5]),
    )
    assert len(postprocess(rows, WHOLE, Suppression(0.45, kind))) >= 4


def test_69_picture_shrunk_to_nothing_has_no_boxes():
    placement = Placement((1, 9), (8, 8), "letterbox")
    assert placement.inner[0] == 0
    assert len(postprocess(random_candidates(5, 2), placement)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("count", "classes"), [(10_000, 80), (1_000_000, 1)])
def test_69_many_candidates_take_bounded_time(count, classes):
    rows = random_candidates(count, classes, zero=0)
    rows[:, 2:4] = 1e-4  # little overlap, which is the most work
    began = time.process_time()
    got = postprocess(rows, WHOLE)
    assert time.process_time() - began < 10  # takes one to two seconds on an idle machine
    assert len(got) <= MAX_SCORES
    assert got.scores[0] == rows[:, 5:].max()


def test_nms_is_per_picture_of_a_batch():
    rng = np.random.default_rng(7)
    placements = [
        Placement((300, 200), (64, 64), kind)
        for kind in ("stretch", "letterbox", "stretch", "crop")
    ]
    batch = []
    for count in (40, 0, 300, 25):
        rows = np.concatenate(
            [rng.random((count, 2)), rng.random((count, 2)) / 3, rng.random((count, 4))], axis=1
        )
        batch.append(rows.astype(np.float32))
    for options in ({}, {"classes": [1]}, {"max_detections": 3}):
        together = postprocess_batch(batch, placements, **options)
        for got, rows, placement in zip(together, batch, placements, strict=True):
            expected = postprocess(rows, placement, **options)
            for name in ("xywh", "scores", "class_ids", "objectness"):
                np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_boxes_of_one_picture_do_not_keep_those_of_others_alive():
    rows = np.full((3, 7), 0.5, np.float32)
    rows[:, 0] = 0.1, 0.4, 0.8
    rows[:, 2:4] = 0.05
    for found in postprocess_batch([rows] * 5, [WHOLE] * 5):
        assert len(found) == 6
        for column in (found.xywh, found.scores, found.class_ids, found.objectness):
            assert column.base is None
            assert len(column) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "many"), [(1 << 20, 1 << 10), (100, 0), (1 << 20, 1 << 30)])
def test_result_does_not_depend_on_how_pairs_are_split(monkeypatch, pairs, many):
    rows = random_candidates(260, 4, seed=8, zero=0.9)
    rows[:, 6] = rows[:, 4]  # one class more than is compared at once
    rows[5:40, 5] = 0.5
    expected = suppressed_by_loops(rows, 0.3, "default")
    monkeypatch.setattr("engine.vision.nms._MAX_PAIRS", pairs)
    monkeypatch.setattr("engine.vision.nms._PREFILTER_PAIRS", many)
    assert as_set(postprocess(rows, WHOLE, Suppression(0.3))) == expected
    alone, twice, none = postprocess_batch([rows, np.tile(rows, (2, 1)), rows[:0]], [WHOLE] * 3)
    assert as_set(alone) == as_set(twice) == suppressed_by_loops(rows, 0.45, "default")
    assert len(none) == 0


def test_threshold_below_zero_suppresses_disjoint_boxes(monkeypatch):
    monkeypatch.setattr("engine.vision.nms._PREFILTER_PAIRS", 0)
    rows = candidates([0.2, 0.5, 0.1, 0.1, 1, 0.9], [0.8, 0.5, 0.1, 0.1, 1, 0.8])
    assert len(postprocess(rows, WHOLE, Suppression(0.0))) == 2
    assert len(postprocess(rows, WHOLE, Suppression(-0.1))) == 1


def test_pictures_without_candidates_have_no_boxes():
    found = postprocess_batch([np.zeros((0, 7), np.float32)] * 3, [WHOLE] * 3, max_detections=2)
    assert [each.xywh.shape for each in found] == [(0, 4)] * 3
    assert postprocess_batch([], []) == []
