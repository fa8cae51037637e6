"""Non-maximum suppression inside the graph, with the boxes of vision/nms.py.

Plain IoU uses ONNX's NonMaxSuppression. For darknet's greedynms and diounms, that node only selects
the scores above the threshold, and a loop suppresses: a box is dropped if a better surviving box
overlaps it, which is repeated until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.arguments import fraction, whole
from engine.export.graph_builder import INPUT, GraphBuilder
from engine.vision.boxes import Suppression
from engine.vision.nms import GREEDY_EXPONENT
from engine.vision.postprocess import MAX_SCORES

MAX_CANDIDATES = 2048  # per picture, for the kinds with a loop, which compares all pairs


@dataclass(frozen=True)
class Nms:
    """Settings of NMS inside the graph."""

    threshold: float = 0.25  # scores must exceed it
    suppression: Suppression = field(default_factory=Suppression)
    max_detections: int = 300

    def __post_init__(self) -> None:
        fraction("threshold", self.threshold)
        fraction("iou", self.overlap)
        whole("max_detections", self.max_detections, most=MAX_SCORES)

    @property
    def overlap(self) -> float:
        assert self.suppression.threshold is not None
        return self.suppression.threshold

    @property
    def is_plain(self) -> bool:
        """Whether the overlap is intersection over union."""
        return self.suppression.kind in ("default", "cornersnms")


@dataclass(frozen=True)
class Best:
    """The best boxes of each picture, as names of values; unused entries are empty."""

    boxes: str  # (batch, most, 4)
    scores: str  # (batch, most); empty: 0
    classes: str  # (batch, most), int64; empty: -1
    count: str  # (batch,), int64
    is_box: str  # (batch, most), bool


def best_boxes(graph: GraphBuilder, boxes: str, scores: str, nms: Nms) -> Best:
    """Return the boxes (batch, rows, 4) that survive, with scores (batch, rows, classes)."""
    scores = graph.node("Transpose", scores, perm=[0, 2, 1])
    most = graph.integers([nms.max_detections])
    if nms.is_plain:
        found = _selected(graph, boxes, scores, nms, most, nms.overlap)
        return _top(graph, *found, empty=nms.max_detections, most=most)
    limit = graph.integers([MAX_CANDIDATES])
    ranked, *others = _selected(graph, boxes, scores, nms, limit, 1.0)
    available = graph.slice(graph.node("Shape", ranked), 1, 2, 0)
    available = graph.node("Add", available, graph.integers([1]))
    candidates = _top(graph, ranked, *others, empty=1, most=graph.node("Min", available, limit))
    kept = _survivors(graph, candidates, nms)
    ranked = graph.node("Where", kept, candidates.scores, graph.number(-1))
    arrays = (candidates.boxes, candidates.classes)
    return _top(graph, ranked, *arrays, empty=nms.max_detections, most=most)


def _selected(
    graph: GraphBuilder, boxes: str, scores: str, nms: Nms, most: str, overlap: float
) -> tuple[str, str, str]:
    """Apply NonMaxSuppression; return scores (batch, found), boxes and classes.

    The node returns the boxes of all pictures in one list. Here every picture gets the whole list,
    with the score -1 for the boxes of other pictures.
    """
    limits = (graph.table(np.array([each], np.float32)) for each in (overlap, nms.threshold))
    found = graph.node("NonMaxSuppression", boxes, scores, most, *limits, center_point_box=1)
    picture, class_id, row = graph.split(found, (1, 1, 1), axis=1)
    score = graph.node("GatherND", scores, found)
    box = graph.node("GatherND", boxes, graph.node("Concat", picture, row, axis=1))
    batch = graph.slice(graph.node("Shape", INPUT), 0, 1, 0)
    zero, one = graph.whole(0), graph.whole(1)
    pictures = graph.node("Range", zero, graph.node("Squeeze", batch), one)
    pictures = graph.reshape(pictures, -1, 1)
    is_own = graph.node("Equal", pictures, graph.reshape(picture, 1, -1))
    ranked = graph.node("Where", is_own, score, graph.number(-1))
    for_each = graph.node("Concat", batch, graph.integers([1, 1]), axis=0)
    box = graph.node("Expand", graph.node("Unsqueeze", box, graph.integers([0])), for_each)
    for_each = graph.node("Concat", batch, graph.integers([1]), axis=0)
    class_id = graph.node("Expand", graph.reshape(class_id, 1, -1), for_each)
    return ranked, box, class_id


def _top(
    graph: GraphBuilder, ranked: str, boxes: str, classes: str, *, empty: int, most: str
) -> Best:
    """Return the `most` best of each picture; `empty` entries are added to have enough."""
    ranked = graph.pad(ranked, (0, 0), (0, empty), -1)
    boxes = graph.pad(boxes, (0, 0, 0), (0, empty, 0), 0)
    pads = graph.integers([0, 0, 0, empty])
    classes = graph.node("Pad", classes, pads, graph.whole(-1))
    best, place = graph.node_with_outputs("TopK", 2, ranked, most, axis=1)
    is_box = graph.node("Greater", best, graph.number(0))
    last = graph.integers([-1])
    place = graph.node("Unsqueeze", place, last)
    found = graph.node("GatherND", boxes, place, batch_dims=1)
    is_row = graph.node("Unsqueeze", is_box, last)
    found_classes = graph.node("GatherND", classes, place, batch_dims=1)
    counted = graph.cast(is_box, np.int64)
    return Best(
        boxes=graph.node("Where", is_row, found, graph.number(0)),
        scores=graph.node("Where", is_box, best, graph.number(0)),
        classes=graph.node("Where", is_box, found_classes, graph.whole(-1)),
        count=graph.node("ReduceSum", counted, graph.integers([1]), keepdims=0),
        is_box=is_box,
    )


# ---------------------------------------------------------------- overlap with distance


def _survivors(graph: GraphBuilder, best: Best, nms: Nms) -> str:
    """Return which of the boxes (batch, n), the best first, are not suppressed."""
    covers = graph.node("Greater", _overlap(graph, best.boxes, nms), graph.number(nms.overlap))
    covers = graph.node("Squeeze", covers, graph.integers([3]))
    same = graph.node("Equal", *_pairs(graph, best.classes))
    length = graph.slice(graph.node("Shape", best.scores), 1, 2, 0)
    rank = graph.node("Range", graph.whole(0), graph.node("Squeeze", length), graph.whole(1))
    is_better = graph.node("Less", graph.reshape(rank, 1, -1), graph.reshape(rank, -1, 1))
    covers = graph.node("And", graph.node("And", covers, same), is_better)
    table = graph.cast(covers, np.float32)  # (batch, n, n): whether a row's box loses to a column's
    last = graph.integers([-1])

    def step(kept: str) -> str:
        column = graph.node("Unsqueeze", graph.cast(kept, np.float32), last)
        losses = graph.node("Squeeze", graph.node("MatMul", table, column), last)
        is_covered = graph.node("Greater", losses, graph.number(0))
        return graph.node("And", best.is_box, graph.node("Not", is_covered))

    return graph.fixpoint(best.is_box, step, (None, None))


def _overlap(graph: GraphBuilder, boxes: str, nms: Nms) -> str:
    """Return the overlap of all pairs of boxes of a picture, (batch, n, n, 1), as vision/nms.py."""
    center, size = graph.split(boxes, (2, 2), axis=2)
    half = graph.scale(size, 0.5)
    low, high = graph.node("Sub", center, half), graph.node("Add", center, half)
    inner = graph.node(
        "Sub",
        graph.node("Min", *_pairs(graph, high)),
        graph.node("Max", *_pairs(graph, low)),
    )
    intersection = graph.reduce("Prod", graph.node("Relu", inner), 3)
    union = graph.node("Add", *_pairs(graph, graph.reduce("Prod", size, 2)))
    union = graph.node("Sub", union, intersection)
    touches = graph.node("Greater", intersection, graph.number(0))
    zero = graph.number(0)
    iou = graph.node("Where", touches, graph.node("Div", intersection, union), zero)
    outer = graph.node(
        "Sub",
        graph.node("Max", *_pairs(graph, high)),
        graph.node("Min", *_pairs(graph, low)),
    )
    between = graph.node("Sub", *_pairs(graph, center))
    distance, diagonal = (graph.reduce("SumSquare", each, 3) for each in (between, outer))
    greedy = nms.suppression.kind == "greedynms"
    exponent = GREEDY_EXPONENT if greedy else nms.suppression.beta
    share = graph.node("Div", distance, diagonal)
    penalty = graph.node("Pow", share, graph.number(exponent))
    is_point = graph.node("Equal", diagonal, zero)
    return graph.node("Where", is_point, iou, graph.node("Sub", iou, penalty))


def _pairs(graph: GraphBuilder, values: str) -> tuple[str, str]:
    """Return the values (batch, n, …) of the first and of the second box of each pair."""
    first, second = graph.integers([2]), graph.integers([1])
    return graph.node("Unsqueeze", values, first), graph.node("Unsqueeze", values, second)
