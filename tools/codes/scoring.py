"""Average precision at an IoU of 0.5, and NMS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


def overlaps(first: Rows, second: Rows) -> Rows:
    """Return the IoU of boxes left, top, right, bottom, as an array (first, second)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    areas = [(each[:, 2:] - each[:, :2]).prod(axis=1) for each in (first, second)]
    return common / (areas[0][:, None] + areas[1][None] - common + 1e-12)


def average_precision(found: list[Rows], truth: list[Rows], kind: int) -> float:
    """Return the AP of a class; each picture has rows of (box, score, class) and (box, class)."""
    scores: list[float] = []
    hits: list[bool] = []
    total = 0
    for rows, codes in zip(found, truth, strict=True):
        rows, codes = rows[rows[:, 5] == kind], codes[codes[:, 4] == kind]
        total += len(codes)
        rows = rows[np.argsort(-rows[:, 4], kind="stable")]
        overlap = overlaps(rows[:, :4], codes[:, :4])
        free = np.ones(len(codes), np.bool_)
        for row, values in zip(rows, overlap, strict=True):
            best = int(np.argmax(np.where(free, values, -1))) if len(codes) else 0
            hit = bool(len(codes)) and bool(free[best]) and bool(values[best] >= 0.5)
            if hit:
                free[best] = False
            scores.append(float(row[4]))
            hits.append(hit)
    if not total:
        return float("nan")
    order = np.argsort(-np.asarray(scores), kind="stable")
    right = np.cumsum(np.asarray(hits, np.float64)[order])
    recall = right / total
    precision = right / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    steps = np.diff(np.concatenate([[0.0], recall]))
    return float((steps * precision).sum())


def nms(rows: Rows, limit: float = 0.45) -> Rows:
    """Return the rows that darknet's greedy NMS keeps."""
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    kept: list[int] = []
    overlap = overlaps(rows[:, :4], rows[:, :4])
    for index, row in enumerate(rows):
        if all(rows[k, 5] != row[5] or overlap[k, index] <= limit for k in kept):
            kept.append(index)
    return rows[kept]
