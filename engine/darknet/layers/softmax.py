"""[softmax]: softmax over all values, over groups, or over the siblings of a class tree."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.darknet.tree import Tree, read_tree
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("softmax", "soft", training="noloss spatial")  # `spatial` does nothing in darknet's C code
@dataclass(frozen=True)
class Softmax(Layer):
    groups: int = option(1, at_least=1)
    temperature: float = option(1.0)
    tree: str | None = None

    def makes_map(self, *shapes: Shape) -> bool:
        return False

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.temperature <= 0:
            raise self.error("temperature", f"expected more than 0, got {self.temperature:g}")
        if shape.size % self.groups:
            raise self.error(
                "groups", f"expected a divisor of {shape.size} values, got {self.groups}"
            )
        inputs = shape.size // self.groups
        nodes = sum(self._group_sizes(shape))
        if nodes != inputs:
            raise self.error("tree", f"expected {inputs} entries, one for each value, got {nodes}")
        return Shape(shape.size)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(Shape(src.shape.size))
        return plan.emit(ops.Softmax(out, src, self._group_sizes(src.shape), self.temperature))

    def read_tree(self) -> Tree | None:
        if self.tree is None:
            return None
        where = self.at("tree")
        return read_tree(self.context.find_tree(self.tree, where), where)

    def _group_sizes(self, shape: Shape) -> tuple[int, ...]:
        tree = self.read_tree()
        return tree.group_sizes if tree else (shape.size // self.groups,)
