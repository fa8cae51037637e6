"""[local_avgpool]: average pooling over windows, without the padding."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import PoolGeometry
from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("local_avgpool", "local_avg")
@dataclass(frozen=True)
class LocalAveragePool(Layer):
    stride: int = option(1, at_least=1)
    stride_x: int | None = option(None, at_least=1)
    stride_y: int | None = option(None, at_least=1)
    size: int | None = option(None, at_least=1)
    padding: int | None = option(None, at_least=0)

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        pool = self._pool
        if pool.size <= (pool.padding + 1) // 2:
            raise self.error(
                "padding", f"{pool.padding} leaves windows of size {pool.size} outside the map"
            )
        return pool.infer(shape)

    def padded(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return self._pool.padded(shape)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(self.infer(src.shape))
        return plan.emit(ops.AveragePool(out, src, self._pool.window(src.shape)))

    @property
    def _pool(self) -> PoolGeometry:
        strides = (self.stride_y or self.stride, self.stride_x or self.stride)
        return PoolGeometry.from_options(self.size or self.stride, strides, self.padding)
