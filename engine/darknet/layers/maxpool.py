"""[maxpool]: max pooling over windows, or over channels with maxpool_depth=1."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Blur, PoolGeometry
from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


# Darknet's C code, which the expected values come from, ignores maxpool_zero_nonmax. Its CUDA code
# zeroes every output that differs from the input at the same index.
@layer("maxpool", "max", training="maxpool_zero_nonmax")
@dataclass(frozen=True)
class MaxPool(Layer):
    stride: int = option(1, at_least=1)
    stride_x: int | None = option(None, at_least=1)
    stride_y: int | None = option(None, at_least=1)
    size: int | None = option(None, at_least=1)  # darknet's default is the stride
    padding: int | None = option(None, at_least=0)  # the total of both sides; default size - 1
    maxpool_depth: bool = False  # pool over channels instead of cells
    out_channels: int = option(1, at_least=1)
    antialiasing: int = option(0)

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.maxpool_depth:
            if self.out_channels > shape.channels:
                raise self.error(
                    "out_channels",
                    f"expected at most the {shape.channels} channels of the map before, "
                    f"got {self.out_channels}",
                )
            return Shape(self.out_channels, shape.height, shape.width)
        pooled = self._pool.infer(shape)
        return self._blur.infer(pooled) if self._blur else pooled

    def intermediates(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        return () if self.maxpool_depth or not self._blur else (self._pool.infer(shape),)

    def padded(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape if self.maxpool_depth else self._pool.padded(shape)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        if self.maxpool_depth:
            return plan.emit(ops.MaxPoolDepth(plan.tensor(self.infer(src.shape)), src))
        out = plan.tensor(self._pool.infer(src.shape))
        out = plan.emit(ops.MaxPool(out, src, self._pool.window(src.shape)))
        return self._blur.lower(plan, out) if self._blur else out

    def _strides(self) -> tuple[int, int]:
        return self.stride_y or self.stride, self.stride_x or self.stride

    @property
    def _pool(self) -> PoolGeometry:
        strides = (1, 1) if self.antialiasing else self._strides()
        return PoolGeometry.from_options(self.size or self.stride, strides, self.padding)

    @property
    def _blur(self) -> Blur | None:
        return Blur(self.antialiasing, self._strides()) if self.antialiasing else None
