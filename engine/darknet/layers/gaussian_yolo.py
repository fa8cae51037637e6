"""[Gaussian_yolo]: [yolo] whose boxes say how uncertain they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from engine.darknet.anchors import TRAINING, MaskedLayer
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor

Point = Literal["center", "left_top", "right_bottom"]


@layer("Gaussian_yolo", training=f"{TRAINING} uc_normalizer")
@dataclass(frozen=True)
class GaussianYolo(MaskedLayer):
    # what x, y is of the box
    yolo_point: str = option("center", choices=("center", "left_top", "right_bottom"))

    nms_kinds = ("default", "greedynms", "diounms", "cornersnms")
    numbers = 9  # each of the box's four has a sigma

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        anchors = self.pick()
        out = plan.emit(
            ops.YoloOutput(
                plan.tensor(src.shape),
                src,
                anchors=len(anchors),
                classes=self.classes,
                box=8,
                scale_x_y=self.scale_x_y,
            )
        )
        plan.head(
            ops.YoloHead(
                out,
                self.classes,
                anchors=anchors,
                network=self.network,
                sigmas=True,
                point=cast(Point, self.yolo_point),
            )
        )
        return out
