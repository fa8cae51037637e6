"""[reorg]: darknet's original reorg, which indexes the input with the output's strides.

The result is a permutation that YOLOv2 was trained with. [reorg3d] is space-to-depth proper.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import layer
from engine.darknet.layers.reorg3d import Reorg3d
from engine.plan.shapes import Shape


@layer("reorg")
@dataclass(frozen=True)
class Reorg(Reorg3d):
    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self._check_channels(shape.channels)
        return super().infer(shape)

    def _grid(self, shape: Shape, out: Shape) -> Shape:
        return shape
