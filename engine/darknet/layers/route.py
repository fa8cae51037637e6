"""[route]: concatenate the outputs of earlier layers, or one group of their channels."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import ConcatPart, Tensor
from engine.plan.shapes import Shape


@layer("route", training="stream wait_stream")
@dataclass(frozen=True)
class Route(Layer):
    layers: tuple[int, ...] = option()
    groups: int = option(1, at_least=1)
    group_id: int = option(0, at_least=0)

    def sources(self) -> tuple[int, ...]:
        return tuple(self.absolute("layers", index) for index in self.layers)

    def makes_map(self, *shapes: Shape) -> bool:
        """Maps of different sizes become a vector, which [connected] can read."""
        return len({(shape.height, shape.width) for shape in shapes}) == 1

    def infer(self, *shapes: Shape) -> Shape:
        if self.group_id >= self.groups:
            raise self.error(
                "group_id", f"expected less than groups={self.groups}, got {self.group_id}"
            )
        for shape in self._views(*shapes):
            if shape.channels % self.groups:
                raise self.error(
                    "groups", f"expected a divisor of {shape.channels} channels, got {self.groups}"
                )
        views = self._views(*shapes)
        channels = sum(shape.channels for shape in views) // self.groups
        return Shape(channels, views[0].height, views[0].width)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        if len(tensors) == 1 and self.groups == 1:
            return tensors[0]
        parts = []
        offset = 0
        views = self._views(*(src.shape for src in tensors))
        for src, view in zip(tensors, views, strict=True):
            if src.shape != view:
                src = plan.emit(ops.Reshape(plan.tensor(view), src))
            count = view.channels // self.groups
            parts.append(ConcatPart(src, self.group_id * count, count, offset))
            offset += count
        out = plan.tensor(Shape(offset, views[0].height, views[0].width))
        return plan.emit(ops.Concat(out, tuple(parts)))

    def _views(self, *shapes: Shape) -> tuple[Shape, ...]:
        """Return the shapes to concatenate: the maps, or their values as vectors."""
        return shapes if self.makes_map(*shapes) else tuple(Shape(each.size) for each in shapes)
