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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    if max_detections is not None and max_detections < 0:
        raise InputError(f"max_detections: expected 0 or more, got {max_detections}")
    placed = place(candidates, placement)
    if classes is not None:
        placed = _without_others(placed, classes)
    boxes = suppress(scored(placed), suppression or Suppression())
    return boxes.take(slice(max_detections))


def place(candidates: Array, placement: Placement) -> Array:
    """Return the candidates with boxes relative to the picture instead of the network's input."""
    candidates = np.asarray(candidates, np.float32)
    if placement.kind == "stretch":
        return candidates
    network = np.array(placement.network, np.float64)
    inner = np.array(placement.inner, np.float64)
    # darknet: half the margin with its fraction, though the picture lies at a whole pixel
    margin = (network - inner) / 2 / network
    ratio = (inner / network).astype(np.float32).astype(np.float64)
    placed = candidates.copy()
    with np.errstate(all="ignore"):  # a picture that shrank to nothing divides by zero
        placed[:, 0:2] = (candidates[:, 0:2] - margin) / ratio
        placed[:, 2:4] = candidates[:, 2:4] * (1 / ratio)
    return placed


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
    with np.errstate(invalid="ignore"):
        above = (candidates[:, 5:] > 0) & (candidates[:, 5:] < np.inf)
    above &= usable(candidates)[:, None]
    rows, class_ids = np.nonzero(above)
    scores = candidates[rows, 5 + class_ids]
    order = np.argsort(-scores, kind="stable")[:MOST_SCORES]
    rows = rows[order]
    return Boxes(candidates[rows, :4], scores[order], class_ids[order], candidates[rows, 4])


def suppress(boxes: Boxes, suppression: Suppression) -> Boxes:
    """Drop each box that a better one of its class covers; `boxes` have the best score first."""
    return boxes.take(survive(boxes, suppression))


def survive(boxes: Boxes, suppression: Suppression) -> Array:
    """Whether each box survives suppress()."""
    if suppression.threshold is None or len(boxes) < 2:
        return np.ones(len(boxes), bool)
    kept = np.zeros(len(boxes), bool)
    with np.errstate(all="ignore"):
        for group in _groups(boxes.class_ids, suppression.across_classes):
            kept[_survivors(boxes.xywh, group, suppression)] = True
    return kept


def _groups(class_ids: Array, across_classes: bool) -> Iterator[Array]:
    """Yield the rows that compete with each other, each group in the order of the rows."""
    if across_classes:
        yield np.arange(len(class_ids))
        return
    order = np.argsort(class_ids, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(class_ids[order])) + 1)


def _survivors(xywh: Array, left: Array, suppression: Suppression) -> Array:
    """Go through the rows `left` from the best on, a block of them at a time."""
    assert suppression.threshold is not None
    survivors = []
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        block = block[_uncovered(_overlap(xywh[block], xywh[block], suppression), suppression)]
        survivors.append(block)
        if len(left):
            # Written so that the NaN of a degenerate pair suppresses nothing.
            covered = _overlap(xywh[block], xywh[left], suppression) > suppression.threshold
            left = left[~covered.any(axis=0)]
    return np.concatenate(survivors)


def _uncovered(overlap: Array, suppression: Suppression) -> Array:
    covers = np.triu(overlap > suppression.threshold, 1)  # a box covers only worse ones
    alive = np.ones(len(covers), bool)
    for row in np.flatnonzero(covers.any(axis=1)):
        if alive[row]:
            alive &= ~covers[row]
    return alive


def _overlap(a: Array, b: Array, suppression: Suppression) -> Array:
    """Return the overlap of each box of `a` with each of `b`."""
    ax, ay, aw, ah = a.T[:, :, None]
    bx, by, bw, bh = b.T[:, None, :]
    wide, tall = _common(ax, aw, bx, bw), _common(ay, ah, by, bh)
    common = np.where((wide < 0) | (tall < 0), np.float32(0), wide * tall)
    united = aw * ah + bw * bh - common
    ratio = np.where((common == 0) | (united == 0), np.float32(0), common / united)
    if suppression.kind in ("default", "cornersnms"):
        return ratio
    exponent = _GREEDY_EXPONENT if suppression.kind == "greedynms" else suppression.beta
    diagonal = _around(ax, aw, bx, bw) ** 2 + _around(ay, ah, by, bh) ** 2
    distance = (ax - bx) ** 2 + (ay - by) ** 2
    penalty = np.power(distance / diagonal, exponent)
    return np.where(diagonal == 0, ratio, ratio - penalty)


def _common(a: Array, a_side: Array, b: Array, b_side: Array) -> Array:
    low = np.maximum(a - a_side / 2, b - b_side / 2)
    return np.asarray(np.minimum(a + a_side / 2, b + b_side / 2) - low)


def _around(a: Array, a_side: Array, b: Array, b_side: Array) -> Array:
    low = np.minimum(a - a_side / 2, b - b_side / 2)
    return np.asarray(np.maximum(a + a_side / 2, b + b_side / 2) - low)
