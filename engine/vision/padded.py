"""The results of several pictures as arrays of one length, for inference protocols."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.arrays import Array
from engine.errors import EngineError
from engine.vision.classification import Classification, Ranked
from engine.vision.detection import Detection
from engine.vision.result import Result


def padded_arrays(
    outcomes: Sequence[Result | Classification | EngineError], *, has_boxes: bool = True
) -> dict[str, Array]:
    """Return results padded to the largest count, which is at least 1.

    `error` says why there is no result, or is empty. Texts are bytes.
    """
    counts = [0 if isinstance(each, EngineError) else len(each) for each in outcomes]
    rows, columns = len(outcomes), max([1, *counts])  # PyTriton rejects empty arrays of strings
    boxes = np.zeros((rows, columns, 4), np.float32)
    scores = np.zeros((rows, columns), np.float32)
    class_ids = np.full((rows, columns), -1, np.int64)
    labels = np.full((rows, columns), b"", object)
    errors = np.full((rows, 1), b"", object)
    for row, (outcome, count) in enumerate(zip(outcomes, counts, strict=True)):
        if isinstance(outcome, EngineError):
            errors[row, 0] = str(outcome).encode()
            continue
        if isinstance(outcome, Result):
            boxes[row, :count] = outcome.boxes
        entries: list[Detection | Ranked] = [*outcome]
        scores[row, :count] = [each.score for each in entries]
        class_ids[row, :count] = [each.class_id for each in entries]
        labels[row, :count] = [each.label.encode() for each in entries]
    return {
        "count": np.array(counts, np.int32)[:, None],
        **({"boxes": boxes} if has_boxes else {}),
        "scores": scores,
        "class_ids": class_ids,
        "labels": labels,
        "error": errors,
    }
