"""[reorg]: darknet's first reorg, which walks the input as if it were the output.

The result is a scrambling that yolov2 was trained with; [reorg3d] is the one that was meant.
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
