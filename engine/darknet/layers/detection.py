"""[detection]: YOLOv1's boxes: a few for each cell of a coarse grid, read from a vector."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import DetectionLayer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import ConcatPart, Tensor
from engine.plan.shapes import Shape

_TRAINING = """
    rescore forced jitter resize random reorg max
    coord_scale object_scale noobject_scale class_scale
"""


@layer("detection", training=_TRAINING)
@dataclass(frozen=True)
class Detection(DetectionLayer):
    classes: int = option(1, at_least=1)
    coords: int = option(1)
    num: int = option(1, at_least=1)
    side: int = option(7, at_least=1)
    softmax: bool = False
    square_root: bool = option(False, key="sqrt")  # the values are roots of width and height

    def makes_map(self, *shapes: Shape) -> bool:
        return False

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.coords != 4:
            raise self.error("coords", f"expected 4, the coordinates of a box, got {self.coords}")
        expected = self.side * self.side * (self.classes + 5 * self.num)
        if shape.size != expected:
            raise self.error(
                "side",
                f"{self.side} x {self.side} cells x ({self.classes} classes + 5 x {self.num}) "
                f"need {expected} values from the layer before, got {shape.size}",
            )
        return Shape(shape.size)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        vector = Shape(src.shape.size)
        out = plan.emit(ops.Reshape(plan.tensor(vector), src))
        if self.softmax:
            out = self._with_softmax(plan, out)
        plan.head(
            ops.GridHead(
                out,
                self.classes,
                side=self.side,
                boxes=self.num,
                square_root=self.square_root,
            )
        )
        return out

    def _with_softmax(self, plan: PlanBuilder, src: Tensor) -> Tensor:
        """Apply softmax to the class scores, which come first, cell by cell."""
        count = self.side * self.side * self.classes
        rest = src.shape.size - count
        scores = plan.tensor(Shape(count))
        plan.emit(ops.Concat(scores, (ConcatPart(src, 0, count, 0),)))
        classes = plan.emit(ops.Softmax(plan.tensor(scores.shape), scores, (self.classes,)))
        parts = (ConcatPart(classes, 0, count, 0), ConcatPart(src, count, rest, count))
        return plan.emit(ops.Concat(plan.tensor(src.shape), parts))
