"""[yolo]: boxes relative to anchors, for each cell of a map."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.anchors import TRAINING, MaskedLayer
from engine.darknet.layers.base import Weights, layer
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor


@layer("yolo", training=TRAINING)
@dataclass(frozen=True)
class Yolo(MaskedLayer):
    new_coords: bool = False  # the convolution before has squashed the values already

    nms_kinds = ("default", "greedynms", "diounms")
    numbers = 5

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        anchors = self.pick()
        out = plan.emit(
            ops.YoloOutput(
                plan.tensor(src.shape),
                src,
                anchors=len(anchors),
                classes=self.classes,
                scale_x_y=self.scale_x_y,
                raw=self.new_coords,
            )
        )
        plan.head(
            ops.YoloHead(
                out,
                self.classes,
                anchors=anchors,
                network=self.network,
                new_coords=self.new_coords,
            )
        )
        return out
