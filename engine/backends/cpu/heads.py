"""Box decoding, as it is defined: keep the rows of a detection layer that exceed a threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.arrays import Array
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS
from engine.vision import class_tree

_LOGISTIC = ACTIVATIONS["logistic"].numpy


def candidates_of_all(
    heads: Sequence[ops.Head], values: Sequence[Array], *, threshold: float, hierarchy: float
) -> Array:
    """Return the rows of all heads; a class that a head does not have scores zero."""
    found = [
        candidates(head, each, threshold=threshold, hierarchy=hierarchy)
        for head, each in zip(heads, values, strict=True)
    ]
    columns = max(rows.shape[1] for rows in found)
    joined = np.zeros((sum(map(len, found)), columns), np.float32)
    start = 0
    for rows in found:
        joined[start : start + len(rows), : rows.shape[1]] = rows
        start += len(rows)
    return joined


def candidates(head: ops.Head, values: Array, *, threshold: float, hierarchy: float) -> Array:
    """Return the rows of `head` for the `values` (c, h, w) of one sample, as `ops.Head` says.

    A score that is NaN is above every threshold, so that it is noticed. `hierarchy` is the
    probability above which a tree of classes descends into a class.
    """
    # boxes may be infinite or NaN, as in darknet and on a GPU
    with np.errstate(all="ignore"):
        boxes, objectness, scores = _DECODERS[type(head)](head, values, threshold, hierarchy)
        rows = np.empty((len(boxes), 5 + head.classes), np.float32)
        rows[:, :4] = boxes
        rows[:, 4] = objectness
        rows[:, 5:] = scores
    return rows


def _yolo(
    head: ops.YoloHead, values: Array, threshold: float, hierarchy: float
) -> tuple[Array, Array, Array]:
    """Decode only anchors whose objectness exceeds the threshold, or is NaN."""
    _, height, width = values.shape
    count, box = len(head.anchors), 8 if head.sigmas else 4
    entries = values.reshape(count, box + 1 + head.classes, height * width)
    cell, anchor = np.nonzero(~(entries[:, box] <= threshold).T)
    found = entries[anchor, :, cell]

    x, y, across, down = found[:, 0 : box : box // 4].T
    if head.new_coords:
        extent = np.stack([(across * 2) ** 2, (down * 2) ** 2], axis=1)
    else:
        extent = np.exp(np.stack([across, down], axis=1))
    extent *= np.divide(head.anchors, head.network).astype(values.dtype)[anchor]
    # Cast first: an operation that casts by itself crashes in NumPy where memory is scarce.
    corner = np.stack([cell % width, cell // width], axis=1).astype(np.float64)
    inside = np.stack([x, y], axis=1).astype(np.float64)
    centre = (corner + inside) / np.array([width, height], np.float64)
    if head.point == "left_top":
        centre += extent / 2
    elif head.point == "right_bottom":
        centre -= extent / 2

    objectness = found[:, box]
    scores = objectness[:, None] * found[:, box + 1 :]
    if head.sigmas:
        scores *= 1 - found[:, 1:box:2].mean(axis=1, keepdims=True)
    return np.concatenate([centre, extent], axis=1), objectness, _above(scores, threshold)


def _region(
    head: ops.RegionHead, values: Array, threshold: float, hierarchy: float
) -> tuple[Array, Array, Array]:
    """Set the objectness of each row to 1, as darknet does: the scores include it already."""
    width, height = head.grid
    coords, count = head.coords, len(head.anchors)
    entries = values.reshape(width * height * count, coords + 1 + head.classes)
    objectness = entries[:, coords]
    if head.classfix == -1:
        objectness = np.where(objectness < 0.5, 0, objectness)
    if head.tree_parents:
        # probabilities in a tree are at most 1, so a low objectness excludes a row
        row = np.flatnonzero(~(objectness <= threshold))
        classes = class_tree.multiply_down(entries[row, coords + 1 :], head.tree_parents)
        scores = _last_above(classes, hierarchy)
        scores[np.isnan(objectness[row])] = np.nan
    else:
        scores = _above(objectness[:, None] * entries[:, coords + 1 :], threshold)
        row = np.arange(len(entries))
    is_kept = scores.any(axis=1)
    row, scores = row[is_kept], scores[is_kept]

    cell, anchor = np.divmod(row, count)
    x, y, across, down = entries[row, :4].T
    anchors = np.asarray(head.anchors, values.dtype)[anchor]
    boxes = [
        (cell % width + _LOGISTIC(x)) / width,
        (cell // width + _LOGISTIC(y)) / height,
        np.exp(across) * anchors[:, 0] / width,
        np.exp(down) * anchors[:, 1] / height,
    ]
    return np.stack(boxes, axis=1), np.ones(len(row)), scores


def _grid(
    head: ops.GridHead, values: Array, threshold: float, hierarchy: float
) -> tuple[Array, Array, Array]:
    """Keep rows by their scores: objectness may have any sign and magnitude here."""
    side, count = head.side, head.boxes
    cells = side * side
    classes, objectness, boxes = np.split(
        values.reshape(-1), [cells * head.classes, cells * (head.classes + count)]
    )
    every = objectness.reshape(cells, count, 1) * classes.reshape(cells, 1, head.classes)
    scores = _above(every.reshape(cells * count, head.classes), threshold)
    row = np.flatnonzero(scores.any(axis=1))

    cell = row // count
    x, y, across, down = boxes.reshape(cells * count, 4)[row].T
    if head.square_root:
        across, down = across**2, down**2
    rows = [(x + cell % side) / side, (y + cell // side) / side, across, down]
    return np.stack(rows, axis=1), objectness[row], scores[row]


def _above(scores: Array, threshold: float) -> Array:
    return np.where(scores <= threshold, 0, scores)  # keeps NaN


def _last_above(probabilities: Array, hierarchy: float) -> Array:
    """Keep one class of each row, the last above `hierarchy`; children come after parents."""
    is_above = ~(probabilities <= hierarchy)
    last = is_above.shape[1] - 1 - is_above[:, ::-1].argmax(axis=1)
    row = np.flatnonzero(is_above.any(axis=1))
    kept = np.zeros_like(probabilities)
    kept[row, last[row]] = probabilities[row, last[row]]
    return kept


_DECODERS: dict[type[ops.Head], Callable[..., tuple[Array, Array, Array]]] = {
    ops.YoloHead: _yolo,
    ops.RegionHead: _region,
    ops.GridHead: _grid,
}
