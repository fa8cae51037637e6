"""Non-maximum suppression: drop boxes that overlap a better one of the same class.

The overlap of boxes a and b, where I and U are the areas of their intersection and union, d the
distance of their centres and c the diagonal of the smallest box around both:
    default, cornersnms   I / U
    greedynms             I / U - (d^2 / c^2)^0.6      the exponent is fixed, as in darknet
    diounms               I / U - (d^2 / c^2)^beta
A box is dropped if its overlap with a better, surviving box exceeds the threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from engine.arrays import Array
from engine.vision.boxes import Boxes, Suppression
from engine.vision.neighbours import Neighbours

GREEDY_EXPONENT = 0.6

_BLOCK = 128
_MAX_PAIRS = 1 << 20  # compared at once, which bounds the memory
_TABLE_BOXES = 2048  # up to here, comparing all pairs beats finding those that touch
_TABLE_SPEED = 8  # speed of comparing all pairs, relative to pairs that were found
_PREFILTER_PAIRS = 1 << 10  # with more pairs, testing for contact first is faster


def suppress(boxes: Boxes, suppression: Suppression) -> Boxes:
    """Drop suppressed boxes; `boxes` are sorted by descending score."""
    return boxes.take(survivors(boxes, suppression))


def survivors(boxes: Boxes, suppression: Suppression) -> Array:
    """Return a mask of the boxes that suppress() keeps."""
    if suppression.threshold is None:
        return np.ones(len(boxes), bool)
    ids = boxes.class_ids
    groups = np.zeros_like(ids) if suppression.across_classes else ids
    return survivors_of_groups(boxes.xywh, groups, suppression)


def survivors_of_groups(xywh: Array, groups: Array, suppression: Suppression) -> Array:
    """Return a mask of the boxes to keep.

    Only boxes of one group suppress each other; within a group the better boxes come first.
    """
    kept = np.ones(len(groups), bool)
    order = groups.argsort(kind="stable")
    grouped = groups[order]
    # for each box, the number of worse ones in its group
    worse = grouped.searchsorted(grouped, side="right") - np.arange(1, len(order) + 1)
    if not worse.any():
        return kept
    boxes = np.ascontiguousarray(xywh.take(order, 0).T)
    with np.errstate(all="ignore"):
        for chunk, find_survivors in _chunks(worse):
            kept[order[chunk]] = find_survivors(boxes[:, chunk], worse[chunk], suppression)
    return kept


def _chunks(worse: Array) -> Iterator[tuple[slice, Callable[[Array, Array, Suppression], Array]]]:
    """Split the groups into chunks: a large group alone, small ones up to _MAX_PAIRS together."""
    if worse.sum() <= _MAX_PAIRS and worse.max() < _BLOCK:
        yield slice(None), _survivors
        return
    ends = np.flatnonzero(worse == 0) + 1
    is_large = np.diff(ends, prepend=0) > _BLOCK
    chunk = worse.cumsum()[ends - 1] // _MAX_PAIRS + 2 * is_large.cumsum() - is_large
    is_last = np.diff(chunk, append=-1) != 0
    first = 0
    for last, large in zip(ends[is_last].tolist(), is_large[is_last].tolist(), strict=True):
        yield slice(first, last), _survivors_of_large_group if large else _survivors
        first = last


def _survivors(boxes: Array, worse: Array, suppression: Suppression) -> Array:
    """Compare all pairs of each group at once."""
    alive = [True] * len(worse)
    better, others = _suppressing_pairs(boxes, worse, suppression)
    for above, below in zip(better.tolist(), others.tolist(), strict=True):
        if alive[above]:
            alive[below] = False
    return np.array(alive, bool)


def _suppressing_pairs(boxes: Array, worse: Array, suppression: Suppression) -> tuple[Array, Array]:
    """Return all pairs (better, worse) that overlap above the threshold, the best first."""
    assert suppression.threshold is not None
    numbers = np.arange(len(worse))
    better = numbers.repeat(worse)
    others = np.arange(1, len(better) + 1) + (numbers + worse - worse.cumsum()).repeat(worse)
    # boxes that do not touch have an overlap of at most 0
    if suppression.threshold >= 0 and len(better) > _PREFILTER_PAIRS:
        for low, high in zip(*_edges(boxes), strict=True):
            nearest = np.minimum(high.take(better), high.take(others))
            touch = np.flatnonzero(nearest > np.maximum(low.take(better), low.take(others)))
            better, others = better.take(touch), others.take(touch)
    overlap = _overlap(boxes.take(better, 1), boxes.take(others, 1), suppression)
    # with >, the NaN of a degenerate pair suppresses nothing
    covers = np.flatnonzero(overlap > suppression.threshold)
    return better.take(covers), others.take(covers)


def _survivors_of_large_group(boxes: Array, worse: Array, suppression: Suppression) -> Array:
    """Compare the boxes of one group block by block, the best block first."""
    assert suppression.threshold is not None
    near = None
    if len(worse) > _TABLE_BOXES and suppression.threshold >= 0:  # only boxes that touch matter
        near = _neighbours(boxes)
    survives = np.zeros(len(worse), bool)
    left = np.arange(len(worse))
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        worse_in_block = np.arange(len(block))[::-1]
        block = block[_survivors(boxes[:, block], worse_in_block, suppression)]
        survives[block] = True
        if near is not None:
            is_dropped = np.zeros(len(worse), bool)
            for better, other in near.touching(block):
                worse_ones = other > better
                better, other = better[worse_ones], other[worse_ones]
                overlap = _overlap(boxes[:, better], boxes[:, other], suppression)
                is_dropped[other[overlap > suppression.threshold]] = True
            left = left[~is_dropped[left]]
        elif len(left):
            table = _overlap(boxes[:, block][:, :, None], boxes[:, left][:, None], suppression)
            left = left[~(table > suppression.threshold).any(axis=0)]
    return survives


def _neighbours(boxes: Array) -> Neighbours | None:
    """Return a spatial index, or None if comparing all pairs is faster because boxes are dense."""
    edges = np.vstack(_edges(boxes)).T
    near = Neighbours(edges, np.zeros(len(edges), np.int64), (1.0, 1.0))
    return near if near.count() < len(edges) ** 2 / _TABLE_SPEED else None


def _overlap(a: Array, b: Array, suppression: Suppression) -> Array:
    """Return the overlap of the boxes of `a` with those of `b`; both are (x, y, w, h)."""
    (a_low, a_high), (b_low, b_high) = _edges(a), _edges(b)
    wide, tall = np.minimum(a_high, b_high) - np.maximum(a_low, b_low)
    intersection = np.where((wide < 0) | (tall < 0), np.float32(0), wide * tall)
    union = a[2] * a[3] + b[2] * b[3] - intersection
    iou = np.where((intersection == 0) | (union == 0), np.float32(0), intersection / union)
    if suppression.kind in ("default", "cornersnms"):
        return iou
    exponent = GREEDY_EXPONENT if suppression.kind == "greedynms" else suppression.beta
    width, height = np.maximum(a_high, b_high) - np.minimum(a_low, b_low)
    diagonal = width**2 + height**2
    distance = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
    # in float64 as in darknet, which gives the same result on every machine
    penalty = np.power((distance / diagonal).astype(np.float64), exponent).astype(np.float32)
    return np.where(diagonal == 0, iou, iou - penalty)


def _edges(boxes: Array) -> tuple[Array, Array]:
    """Return (left, top) and (right, bottom)."""
    half = boxes[2:] / 2
    return boxes[:2] - half, boxes[:2] + half
