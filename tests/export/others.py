"""A reader of exported detectors, written from the documentation of ultralytics.

It knows nothing of the engine: the metadata are Python literals, and the shape of the output and
the entry `nms` tell the layout.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

import numpy as np


class Found(NamedTuple):
    label: str
    score: float
    box: np.ndarray  # left, top, right, bottom in pixels of the input


class Reader:
    """What ultralytics' AutoBackend and non_max_suppression() do with an .onnx file."""

    def __init__(self, content):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        found = self.session.get_modelmeta().custom_metadata_map
        self.stride, self.batch, self.channels = (
            int(found[name]) for name in ("stride", "batch", "channels")
        )
        self.imgsz, self.names, self.args = (
            ast.literal_eval(found[name]) for name in ("imgsz", "names", "args")
        )
        assert found["task"] == "detect"
        (self.source,) = self.session.get_inputs()

    def __call__(self, images, *, conf, iou):
        """Return a list of Found for each picture of a batch, the best first."""
        (output,) = self.session.run(None, {self.source.name: images})
        if self.args["nms"]:
            return [self._named(rows[rows[:, 4] > conf]) for rows in output]
        classes = len(self.names)
        is_transposed = output.shape[1] == 4 + classes
        return [
            self._named(_suppressed(*_candidates(rows, is_transposed, conf), iou))
            for rows in output
        ]

    def _named(self, rows):
        return [Found(self.names[int(row[5])], float(row[4]), row[:4]) for row in rows]


def _candidates(rows, is_transposed, conf):
    """Return boxes, scores and classes above `conf`, one for each box and class."""
    if is_transposed:  # YOLOv8: (4 + classes, boxes)
        boxes, scores = rows[:4].T, rows[4:].T
    else:  # YOLOv5: (boxes, 4 + objectness + classes)
        rows = rows[rows[:, 4] > conf]
        boxes, scores = rows[:, :4], rows[:, 5:] * rows[:, 4:5]
    number, class_id = np.nonzero(scores > conf)
    chosen = boxes[number]
    half = chosen[:, 2:] / 2
    corners = np.concatenate([chosen[:, :2] - half, chosen[:, :2] + half], axis=1)
    return corners, scores[number, class_id], class_id


def _suppressed(boxes, scores, classes, iou):
    """Apply NMS within each class; return rows of corners, score and class."""
    order = np.argsort(-scores, kind="stable")
    kept = []
    for each in order:
        rivals = [other for other in kept if classes[other] == classes[each]]
        if all(_iou(boxes[each], boxes[other]) <= iou for other in rivals):
            kept.append(each)
    return np.column_stack([boxes[kept], scores[kept], classes[kept]])


def _iou(a, b):
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    if (sides <= 0).any():
        return 0.0
    inside = sides.prod()
    return inside / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - inside)
