from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cpu.heads import candidates
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.plan import ops
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape
from tests import needs
from tests.backends.head_cases import (
    ANCHORS,
    HEADS,
    NETWORK,
    decode_by_loops,
    objectness_of,
    values_for,
)

Array = NDArray[Any]

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "open" / "micro"

every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


@every_head
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.6])
def test_rows_equal_those_of_loops(head, threshold):
    values = values_for(head)
    expected = decode_by_loops(head, values, threshold=threshold, hierarchy=0.3)
    got = candidates(head, values, threshold=threshold, hierarchy=0.3)
    assert expected or threshold == 0.6
    assert got.dtype == np.float32
    assert got.shape == (len(expected), 5 + head.classes)
    if expected:
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


@every_head
def test_nhwc_values_decode_to_the_same_rows(head):
    values = values_for(head)
    last = np.ascontiguousarray(values.transpose(1, 2, 0)).transpose(2, 0, 1)
    before = last.copy()
    np.testing.assert_array_equal(
        candidates(head, last, threshold=0.1, hierarchy=0.5),
        candidates(head, values, threshold=0.1, hierarchy=0.5),
    )
    np.testing.assert_array_equal(last, before)


@every_head
def test_no_row_is_below_the_threshold(head):
    rows = candidates(head, values_for(head), threshold=2.0, hierarchy=0.5)
    assert rows.shape == (0, 5 + head.classes)


@every_head
def test_scores_that_are_nan_stay_so_that_they_are_noticed(head):
    values = np.full(head.src.shape.sides, np.nan, np.float32)
    rows = candidates(head, values, threshold=0.1, hierarchy=0.5)
    assert len(rows) > 0
    assert np.isnan(rows[:, 5:]).any(axis=1).all()


@every_head
def test_an_objectness_of_nan_is_noticed_among_numbers(head):
    values = values_for(head)
    expected = len(candidates(head, values, threshold=0.1, hierarchy=0.3))
    objectness_of(head, values)[:1] = np.nan
    rows = candidates(head, values, threshold=0.1, hierarchy=0.3)
    assert np.isnan(rows[:, 5:]).any(axis=1).sum() == 1
    assert abs(len(rows) - expected) <= 1


def test_thresholds_are_strict():
    head = ops.YoloHead(Tensor(1, Shape(7)), 2, ANCHORS[:1], NETWORK)
    values = np.array([0, 0, 0, 0, 0.5, 1.0, 0.5], np.float32).reshape(7, 1, 1)
    assert len(candidates(head, values, threshold=0.5, hierarchy=0.5)) == 0
    (row,) = candidates(head, values, threshold=0.25, hierarchy=0.5)
    assert list(row[4:]) == [
        0.5,
        0.5,
        0,
    ]  # the second class scores exactly 0.25


def test_a_row_with_objectness_is_kept_without_a_class():
    head = ops.YoloHead(Tensor(1, Shape(6)), 1, ANCHORS[:1], NETWORK)
    values = np.array([0, 0, 0, 0, 0.5, 0.1], np.float32).reshape(6, 1, 1)
    (row,) = candidates(head, values, threshold=0.3, hierarchy=0.5)
    assert list(row[4:]) == [0.5, 0]


def test_a_width_may_overflow_to_infinity_without_a_warning():
    head = ops.YoloHead(Tensor(1, Shape(6)), 1, ANCHORS[:1], NETWORK)
    values = np.array([0, 0, 1000, 0, 1, 1], np.float32).reshape(6, 1, 1)
    (row,) = candidates(head, values, threshold=0.3, hierarchy=0.5)
    assert row[2] == np.inf
    assert np.isfinite(row[[0, 1, 3, 4, 5]]).all()


def test_a_tree_descends_to_the_last_probable_class():
    parents = (-1, 0, 1)
    head = ops.RegionHead(Tensor(1, Shape(8)), 3, ((1.0, 1.0),), (1, 1), tree_parents=parents)
    values = np.array([0, 0, 0, 0, 0.9, 1.0, 0.8, 0.8], np.float32).reshape(8, 1, 1)
    for hierarchy, scores in [(0.5, [0, 0, 0.64]), (0.7, [0, 0.8, 0]), (0.9, [1, 0, 0])]:
        (row,) = candidates(head, values, threshold=0.5, hierarchy=hierarchy)
        np.testing.assert_allclose(row[5:], scores, rtol=1e-6)


def golden_cases() -> list[str]:
    return sorted(path.parent.name for path in GOLDEN.glob("*/boxes.json"))


@pytest.mark.skipif(not golden_cases(), reason=needs.no_shared("golden"))
@pytest.mark.parametrize("name", golden_cases())
def test_rows_equal_those_of_darknet_before_nms(name):
    """Decode darknet's own layer outputs and compare with the boxes of darknet."""
    folder = GOLDEN / name
    case = json.loads((folder / "case.json").read_text())
    network = graph.build(cfg.read(folder / "net.cfg"))
    plan = lower(network, weights.initial(network))
    outputs = np.load(folder / "golden.npz")
    decoded = [spec for spec in json.loads((folder / "boxes.json").read_text()) if is_plain(spec)]
    assert decoded
    for spec in decoded:
        got = [row for head in plan.heads for row in triples(head, plan, outputs, case, spec)]
        expected = np.array(spec["raw"])
        assert len(got) == len(expected) > 0
        columns = [0, 1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose(np.array(got)[:, columns], expected, rtol=2e-5, atol=2e-6)


def is_plain(spec: dict[str, Any]) -> bool:
    """Whether boxes are relative to the network's input, so that only decoding happened."""
    return bool(spec["relative"]) and not spec["letterbox"]


def triples(
    head: ops.Head, plan: Any, outputs: Any, case: dict[str, Any], spec: dict[str, Any]
) -> list[list[float]]:
    """Return class, score, box and objectness of each positive score, in darknet's order."""
    layer = plan.layers.index(head.src)
    flat = outputs[f"c{case['calls'] - 1}_l{layer}"]
    values = flat.reshape(case["batch"], *head.src.shape.sides)[0]
    rows = candidates(head, values, threshold=np.float32(spec["thresh"]), hierarchy=0.5)
    # darknet multiplies boxes of a grid by the size of the picture even if they are relative
    scale = 1.0, 1.0
    if isinstance(head, ops.GridHead):
        scale = spec["image_w"], spec["image_h"]
    return [
        [index, score, *(row[:4] * (*scale, *scale)), row[4]]
        for row in rows
        for index, score in enumerate(row[5:])
        if score > 0
    ]
