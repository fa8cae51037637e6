"""A result with three boxes, for tests."""

import numpy as np

from engine.vision.result import Result

RESULT = Result(
    size=(100, 50),
    xywhn=np.array([[0.4, 0.4, 0.4, 0.4], [0.1, 0.2, 0.2, 0.4], [0.75, 0.7, 0.5, 0.6]], np.float32),
    scores=np.array([0.9, 0.5, 0.25], np.float32),
    class_ids=np.array([1, 0, 1]),
    names=("cat", "dog"),
    path="street.jpg",
)
