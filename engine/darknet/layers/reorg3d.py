"""[reorg3d]: space to depth, or depth to space with reverse=1."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("reorg3d")
@dataclass(frozen=True)
class Reorg3d(Layer):
    stride: int = option(1, at_least=1)
    reverse: bool = False

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        stride = self.stride
        if self.reverse:
            self._check_channels(shape.channels)
            out = Shape(shape.channels // stride**2, shape.height * stride, shape.width * stride)
            self._check_channels(self._grid(shape, out).channels)
            return out
        if shape.height % stride or shape.width % stride:
            raise self.error(
                "stride", f"expected a divisor of {shape.width} and {shape.height}, got {stride}"
            )
        return Shape(shape.channels * stride**2, shape.height // stride, shape.width // stride)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(self.infer(src.shape))
        grid = self._grid(src.shape, out.shape)
        return plan.emit(ops.Reorg(out, src, self.stride, grid, self.reverse))

    def _grid(self, shape: Shape, out: Shape) -> Shape:
        """Return the shape that defines the order of the assignments."""
        return out

    def _check_channels(self, channels: int) -> None:
        if channels % self.stride**2:
            raise self.error(
                "stride", f"expected its square to divide {channels} channels, got {self.stride}"
            )
