"""From a network's candidates to the boxes of a picture: place, suppress, list.

A candidate row is x, y, w, h (centre and size relative to the network's input), objectness, and one
score for each class, zero where darknet would drop it. Overlap of boxes a and b, I over U their
common and united area, d the distance of their centres, c the diagonal of the box around both:
    default, cornersnms   I / U
    greedynms             I / U - (d^2 / c^2)^0.6      the exponent is fixed, as in darknet
    diounms               I / U - (d^2 / c^2)^beta
A box goes when its overlap with a better one of the same class is above the threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError, suggest
from engine.vision.resize import Placement

Array = NDArray[Any]
Kind = Literal["default", "cornersnms", "greedynms", "diounms"]

MOST_SCORES = 10_000  # of one picture: the work of suppression grows with the square

_GREEDY_EXPONENT = 0.6
_BLOCK = 128
_PAIRS = 1 << 20  # compared at once: what memory they take stays small
_MANY = 1 << 10  # pairs of which it pays to look first which touch
_FURTHEST = 1e30  # beyond it float32 pixels overflow: exp of a broken network's width


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression; a threshold of None leaves every box."""

    threshold: float | None = 0.45
    kind: Kind = "default"
    beta: float = 0.6
    across_classes: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InputError(f"nms: threshold: expected a finite number, got {self.threshold}")
        if self.kind not in get_args(Kind):
            expected = ", ".join(get_args(Kind))
            hint = suggest(self.kind, get_args(Kind))
            raise InputError(f"nms: kind: expected {expected}, got {self.kind!r}.{hint}")


@dataclass(frozen=True, eq=False)
class Boxes:
    """One row for each box and class with a score above zero, the best score first."""

    xywh: Array  # (n, 4) float32: centre and size relative to the picture, not clipped to it
    scores: Array  # (n,) float32
    class_ids: Array  # (n,) int64
    objectness: Array  # (n,) float32

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Array | slice) -> Boxes:
        return Boxes(
            self.xywh[rows], self.scores[rows], self.class_ids[rows], self.objectness[rows]
        )


_NOTHING = Boxes(
    np.empty((0, 4), np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
)


def find(
    candidates: Array,
    placement: Placement,
    suppression: Suppression | None = None,
    *,
    classes: Sequence[int] | None = None,
    max_detections: int | None = None,
) -> Boxes:
    """List what is left of a picture's candidates after suppression, the best score first.

    Only scores of `classes` count, if they are given. Rows that are not finite are left out. Of
    more than MOST_SCORES scores the best are looked at.
    """
    (found,) = find_all(
        *((candidates,), (placement,), suppression),
        classes=classes,
        max_detections=max_detections,
    )
    return found


def find_all(
    candidates: Sequence[Array],
    placements: Sequence[Placement],
    suppression: Suppression | None = None,
    *,
    classes: Sequence[int] | None = None,
    max_detections: int | None = None,
) -> list[Boxes]:
    """What find() returns, for every picture of a batch: the whole in few calls of NumPy."""
    if max_detections is not None and max_detections < 0:
        raise InputError(f"max_detections: expected 0 or more, got {max_detections}")
    counts = [len(each) for each in candidates]
    if not any(counts):
        return [_NOTHING] * len(counts)
    pictures = np.arange(len(counts)).repeat(counts)
    parts = [np.asarray(each, np.float32) for each in candidates if len(each)]
    rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
    rows = _placed(rows, pictures, placements)
    if classes is not None:
        rows = _without_others(rows, classes)
    boxes, pictures = _scored(rows, pictures)
    chosen = suppression or Suppression()
    if chosen.threshold is not None:
        groups = pictures * (rows.shape[1] + 1)  # a number for each picture and class
        if not chosen.across_classes:
            groups = groups + boxes.class_ids
        kept = _kept(boxes.xywh, groups, chosen)
        if not kept.all():
            boxes, pictures = boxes.take(kept), pictures[kept]
    if len(counts) == 1:
        return [boxes if max_detections is None else boxes.take(slice(max_detections))]
    ends = pictures.searchsorted(np.arange(len(counts)), side="right").tolist()
    starts = [0, *ends[:-1]]
    if max_detections is not None:
        ends = [min(pair) for pair in zip(ends, (s + max_detections for s in starts), strict=True)]
    # Copies, not slices: who keeps the boxes of one picture is not to keep those of all.
    return [boxes.take(np.arange(*pair)) for pair in zip(starts, ends, strict=True)]


def some(
    found: Boxes, classes: Sequence[int] | None = None, max_detections: int | None = None
) -> Boxes:
    """Those of some classes, and the best of them."""
    if classes is not None:
        found = found.take(np.isin(found.class_ids, classes))
    return found if max_detections is None else found.take(slice(max_detections))


def above(candidates: Array, threshold: float) -> Array:
    """What a higher threshold leaves of candidates whose score is at most their objectness."""
    rows = candidates[candidates[:, 4] > threshold]
    rows[:, 5:] = np.where(rows[:, 5:] > threshold, rows[:, 5:], 0)
    return rows


def place(candidates: Array, placement: Placement) -> Array:
    """Return the candidates with boxes relative to the picture instead of the network's input."""
    candidates = np.asarray(candidates, np.float32)
    return _placed(candidates, np.zeros(len(candidates), np.int64), (placement,))


def _placed(candidates: Array, pictures: Array, placements: Sequence[Placement]) -> Array:
    """The same for several pictures, `pictures` being the number of each row's."""
    if all(placement.kind == "stretch" for placement in placements):
        return candidates
    margin, ratio = np.array([margin_and_ratio(each) for each in placements])[pictures].transpose(
        1, 0, 2
    )
    placed = candidates.copy()
    with np.errstate(all="ignore"):  # a picture that shrank to nothing divides by zero
        placed[:, 0:2] = (candidates[:, 0:2] - margin) / ratio
        placed[:, 2:4] = candidates[:, 2:4] * (1 / ratio)
    return placed


@lru_cache(maxsize=256)
def margin_and_ratio(placement: Placement) -> tuple[list[float], list[float]]:
    """Of width and height: the free part of the network's input on one side, the taken part."""
    if placement.kind == "stretch":
        return [0.0, 0.0], [1.0, 1.0]
    network = np.array(placement.network, np.float64)
    inner = np.array(placement.inner, np.float64)
    # darknet: half the margin with its fraction, though the picture lies at a whole pixel
    margin = (network - inner) / 2 / network
    ratio = (inner / network).astype(np.float32).astype(np.float64)
    return margin.tolist(), ratio.tolist()


def _without_others(candidates: Array, classes: Sequence[int]) -> Array:
    wanted = np.zeros(candidates.shape[1] - 5, bool)
    wanted[list(classes)] = True
    chosen = candidates.copy()
    chosen[:, 5:][:, ~wanted] = 0
    return chosen


def usable(candidates: Array) -> Array:
    """Whether each row's box is finite and can be expressed in pixels."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.all(np.abs(candidates[:, :4]) < _FURTHEST, axis=1))


def scored(candidates: Array) -> Boxes:
    """Pair each candidate's box with each of its scores above zero, the best score first."""
    return _scored(candidates, np.zeros(len(candidates), np.int64))[0]


def _scored(candidates: Array, pictures: Array) -> tuple[Boxes, Array]:
    """The same for several pictures, one behind the other; and the picture of each box."""
    with np.errstate(invalid="ignore"):
        above = candidates[:, 5:] > 0
        rows, class_ids = np.divmod(np.flatnonzero(above), above.shape[1])
        scores, xywh = candidates[rows, 5 + class_ids], candidates[:, :4].take(rows, 0)
        if not (np.abs(xywh).max(initial=0) < _FURTHEST and scores.max(initial=0) < np.inf):
            good = (np.abs(xywh) < _FURTHEST).all(axis=1) & (scores < np.inf)
            rows, class_ids, scores, xywh = rows[good], class_ids[good], scores[good], xywh[good]
    pictures = pictures[rows]
    order = np.lexsort((-scores, pictures))
    if len(order) > MOST_SCORES:
        sorted_pictures = pictures[order]
        rank = np.arange(len(order)) - np.searchsorted(sorted_pictures, sorted_pictures)
        order = order[rank < MOST_SCORES]
    boxes = Boxes(xywh.take(order, 0), scores[order], class_ids[order], candidates[rows[order], 4])
    return boxes, pictures[order]


def suppress(boxes: Boxes, suppression: Suppression) -> Boxes:
    """Drop each box that a better one of its class covers; `boxes` have the best score first."""
    return boxes.take(survive(boxes, suppression))


def survive(boxes: Boxes, suppression: Suppression) -> Array:
    """Whether each box survives suppress()."""
    if suppression.threshold is None:
        return np.ones(len(boxes), bool)
    ids = boxes.class_ids
    return _kept(boxes.xywh, np.zeros_like(ids) if suppression.across_classes else ids, suppression)


def _kept(xywh: Array, groups: Array, suppression: Suppression) -> Array:
    """Which boxes stay; those of one group compete, and of these the better come first."""
    kept = np.ones(len(groups), bool)
    order = groups.argsort(kind="stable")
    grouped = groups[order]
    # Of each box how many follow it in its group.
    worse = grouped.searchsorted(grouped, side="right") - np.arange(1, len(order) + 1)
    if not worse.any():
        return kept
    boxes = np.ascontiguousarray(xywh.take(order, 0).T)
    with np.errstate(all="ignore"):
        for share, find_survivors in _shares(worse):
            kept[order[share]] = find_survivors(boxes[:, share], worse[share], suppression)
    return kept


def _shares(worse: Array) -> Iterator[tuple[slice, Callable[[Array, Array, Suppression], Array]]]:
    """A large group alone, or as many small ones at a time as have not too many pairs together."""
    if worse.sum() <= _PAIRS and worse.max() < _BLOCK:
        yield slice(None), _survivors
        return
    ends = np.flatnonzero(worse == 0) + 1
    is_large = np.diff(ends, prepend=0) > _BLOCK
    share = worse.cumsum()[ends - 1] // _PAIRS + 2 * is_large.cumsum() - is_large
    is_last = np.diff(share, append=-1) != 0
    first = 0
    for last, alone in zip(ends[is_last].tolist(), is_large[is_last].tolist(), strict=True):
        yield slice(first, last), _survivors_of_many if alone else _survivors
        first = last


def _survivors(boxes: Array, worse: Array, suppression: Suppression) -> Array:
    """Which boxes no better one covers that survives itself."""
    alive = [True] * len(worse)
    better, others = _covering_pairs(boxes, worse, suppression)
    for above, below in zip(better.tolist(), others.tolist(), strict=True):
        if alive[above]:
            alive[below] = False
    return np.array(alive, bool)


def _covering_pairs(boxes: Array, worse: Array, suppression: Suppression) -> tuple[Array, Array]:
    """Every pair (better, worse) of which the first covers the other, the best first."""
    assert suppression.threshold is not None
    numbers = np.arange(len(worse))
    better = numbers.repeat(worse)
    others = np.arange(1, len(better) + 1) + (numbers + worse - worse.cumsum()).repeat(worse)
    if suppression.threshold >= 0 and len(better) > _MANY:  # only what touches is covered
        for low, high in zip(*_edges(boxes), strict=True):
            nearest = np.minimum(high.take(better), high.take(others))
            touch = np.flatnonzero(nearest > np.maximum(low.take(better), low.take(others)))
            better, others = better.take(touch), others.take(touch)
    overlap = _overlap(boxes.take(better, 1), boxes.take(others, 1), suppression)
    # Written so that the NaN of a degenerate pair suppresses nothing.
    covers = np.flatnonzero(overlap > suppression.threshold)
    return better.take(covers), others.take(covers)


def _survivors_of_many(boxes: Array, worse: Array, suppression: Suppression) -> Array:
    """The same of one group: from the best box on, a block of them at a time."""
    survives = np.zeros(len(worse), bool)
    left = np.arange(len(worse))
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        worse_there = np.arange(len(block))[::-1]
        block = block[_survivors(boxes[:, block], worse_there, suppression)]
        survives[block] = True
        if len(left):
            table = _overlap(boxes[:, block][:, :, None], boxes[:, left][:, None], suppression)
            left = left[~(table > suppression.threshold).any(axis=0)]
    return survives


def _overlap(a: Array, b: Array, suppression: Suppression) -> Array:
    """Return the overlap of the boxes of `a` with those of `b`; both are (x, y, w, h)."""
    (a_low, a_high), (b_low, b_high) = _edges(a), _edges(b)
    wide, tall = np.minimum(a_high, b_high) - np.maximum(a_low, b_low)
    common = np.where((wide < 0) | (tall < 0), np.float32(0), wide * tall)
    united = a[2] * a[3] + b[2] * b[3] - common
    ratio = np.where((common == 0) | (united == 0), np.float32(0), common / united)
    if suppression.kind in ("default", "cornersnms"):
        return ratio
    exponent = _GREEDY_EXPONENT if suppression.kind == "greedynms" else suppression.beta
    width, height = np.maximum(a_high, b_high) - np.minimum(a_low, b_low)
    diagonal = width**2 + height**2
    distance = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
    # as darknet: of doubles, which also makes it the same on every machine
    penalty = np.power((distance / diagonal).astype(np.float64), exponent).astype(np.float32)
    return np.where(diagonal == 0, ratio, ratio - penalty)


def _edges(boxes: Array) -> tuple[Array, Array]:
    """Left and top, right and bottom."""
    half = boxes[2:] / 2
    return boxes[:2] - half, boxes[:2] + half
