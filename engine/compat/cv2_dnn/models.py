"""DetectionModel and ClassificationModel: from a picture to boxes or to a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.arrays import Array
from engine.compat.cv2_dnn.blob import Scalar, Size, array_of, blobFromImage, sides_of
from engine.compat.cv2_dnn.files import Content
from engine.compat.cv2_dnn.net import Net, readNet
from engine.compat.cv2_dnn.old_and_new import Found, Items
from engine.compat.cv2_dnn.suppression import kept_boxes
from engine.errors import InputError

_Self = TypeVar("_Self", bound="Model")


class Model:
    """A Net with the parameters of its blob. Setters return the model, as in OpenCV 4."""

    _read: Callable[..., Net] = staticmethod(readNet)

    def __init__(
        self,
        model: Net | Content | None = None,
        config: Content = "",
        *,
        network: Net | None = None,
    ) -> None:
        if (model is None) == (network is None):
            raise TypeError(f"{type(self).__name__}(): expected model or network")
        given = network if model is None else model
        self.net = given if isinstance(given, Net) else self._read(given, config)
        self._scale: float | Sequence[float] = 1.0
        self._size: tuple[int, int] | None = None  # None means the .cfg's size
        self._mean: Scalar = None
        self._swap = False
        self._crop = False
        self._outputs: tuple[str, ...] = ()

    def setInputParams(
        self: _Self,
        scale: float | Sequence[float] = 1.0,
        size: Size = None,
        mean: Scalar = None,
        swapRB: bool = False,
        crop: bool = False,
    ) -> _Self:
        """Set how a picture becomes a blob; the default size is that of the .cfg."""
        self._scale, self._size, self._mean = scale, sides_of(size), mean
        self._swap, self._crop = swapRB, crop
        return self

    def setInputSize(self: _Self, size: Size | int, height: int | None = None) -> _Self:
        """Set the size as a pair or as width and height."""
        self._size = sides_of((size, height or size) if isinstance(size, int) else size)
        return self

    def setInputScale(self: _Self, scale: float | Sequence[float]) -> _Self:
        self._scale = scale
        return self

    def setInputMean(self: _Self, mean: Scalar) -> _Self:
        self._mean = mean
        return self

    def setInputSwapRB(self: _Self, swapRB: bool) -> _Self:
        self._swap = swapRB
        return self

    def setInputCrop(self: _Self, crop: bool) -> _Self:
        self._crop = crop
        return self

    def setOutputNames(self: _Self, outNames: Sequence[str]) -> _Self:
        self._outputs = tuple(outNames)
        return self

    def setPreferableBackend(self: _Self, backendId: int) -> _Self:
        self.net.setPreferableBackend(backendId)
        return self

    def setPreferableTarget(self: _Self, targetId: int) -> _Self:
        self.net.setPreferableTarget(targetId)
        return self

    def enableWinograd(self: _Self, useWinograd: bool) -> _Self:
        return self

    def predict(self, frame: Array) -> tuple[Array, ...]:
        """Return the outputs of the network for a picture."""
        size = self._size or self.net.size
        blob = blobFromImage(frame, self._scale, size, self._mean, self._swap, self._crop)
        self.net.setInput(blob)
        return self.net.forward(self._output_names)

    @property
    def _output_names(self) -> tuple[str, ...]:
        return self._outputs or self.net.getUnconnectedOutLayersNames()


class DetectionModel(Model):
    """A detector: detect() returns class numbers, scores and boxes."""

    _across_classes = False

    def setNmsAcrossClasses(self, value: bool) -> DetectionModel:
        self._across_classes = bool(value)
        return self

    def getNmsAcrossClasses(self) -> bool:
        return self._across_classes

    def detect(
        self, frame: Array, confThreshold: float = 0.5, nmsThreshold: float = 0.0
    ) -> tuple[Found, Found, NDArray[np.int32] | tuple[Array, ...]]:
        """Return classes, scores and boxes (left, top, width, height) in whole pixels.

        As in OpenCV, these are three empty tuples if nothing is found. Each row contributes its
        best class. Boxes are clipped to the picture. A threshold of 0 turns NMS off; otherwise
        boxes are sorted by class, then by descending score.
        """
        outputs = self.predict(frame)
        if any(each.ndim != 2 or each.shape[1] < 6 for each in outputs):
            raise InputError("detect: expected a network that ends in [yolo] or [region]")
        rows = np.concatenate(outputs)
        classes = rows[:, 5:].argmax(axis=1)
        scores = rows[np.arange(len(rows)), 5 + classes]
        chosen = scores >= np.float32(confThreshold)
        classes, scores = classes[chosen], scores[chosen]
        height, width = array_of(frame).shape[:2]
        boxes = _in_pixels(rows[chosen, :4], width, height)
        if nmsThreshold:
            kept = self._kept(boxes, scores, classes, confThreshold, nmsThreshold)
            classes, scores, boxes = classes[kept], scores[kept], boxes[kept]
        if not len(boxes):
            return (), (), ()
        return Items.of(classes, np.int32), Items.of(scores, np.float32), boxes

    def _kept(
        self, boxes: Array, scores: Array, classes: Array, least: float, overlap: float
    ) -> Array:
        if self._across_classes:
            return kept_boxes(boxes, scores, least, overlap)
        kept = [np.empty(0, np.int64)]
        for number in np.unique(classes):
            rows = np.flatnonzero(classes == number)
            kept.append(rows[kept_boxes(boxes[rows], scores[rows], least, overlap)])
        return np.concatenate(kept)


class ClassificationModel(Model):
    """A classifier: classify() returns the best class and its score."""

    _softmax = False

    def setEnableSoftmaxPostProcessing(self, enable: bool) -> ClassificationModel:
        self._softmax = bool(enable)
        return self

    def getEnableSoftmaxPostProcessing(self) -> bool:
        return self._softmax

    def classify(self, frame: Array) -> tuple[int, float]:
        """Return the number of the best class and its score."""
        outputs = self.predict(frame)
        if len(outputs) != 1 or self.net.detects(self._output_names):
            raise InputError(
                "classify: expected a network with one output of scores, such as [softmax]. "
                "For boxes see DetectionModel"
            )
        scores = outputs[0].reshape(-1)
        if self._softmax:
            scores = np.exp(scores - scores.max())
            scores /= scores.sum()
        best = int(scores.argmax())
        return best, float(scores[best])


def _in_pixels(boxes: Array, width: int, height: int) -> Array:
    """Return integer left, top, width and height, rounded and clipped as OpenCV does."""
    limit = np.float32(2**30)
    scaled = boxes * np.array((width, height, width, height), np.float32)
    x, y, w, h = np.nan_to_num(scaled).clip(-limit, limit).astype(np.int64).T
    left, top = (x - _half(w)).clip(0, width - 1), (y - _half(h)).clip(0, height - 1)
    sides = np.minimum(w, width - left).clip(1), np.minimum(h, height - top).clip(1)
    return np.stack([left, top, *sides], axis=1).astype(np.int32)


def _half(sides: Array) -> Array:
    """Divide by two, rounding toward zero as C does."""
    return np.asarray(np.sign(sides) * (np.abs(sides) // 2))
