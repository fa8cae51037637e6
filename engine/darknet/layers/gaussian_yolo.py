"""[Gaussian_yolo]: [yolo] with an uncertainty for each box coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from engine.darknet.layers.base import Weights, layer
from engine.darknet.layers.yolo import TRAINING, YoloBase
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor

ReferencePoint = Literal["center", "left_top", "right_bottom"]


@layer("Gaussian_yolo", training=f"{TRAINING} uc_normalizer")
@dataclass(frozen=True)
class GaussianYolo(YoloBase):
    # the point of the box that x, y refer to
    yolo_point: str = option("center", choices=get_args(ReferencePoint))

    nms_kinds = ("default", "greedynms", "diounms", "cornersnms")
    box_values = 9  # each of the four coordinates has a sigma

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        anchors = self.selected_anchors()
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
                network=self.network_size,
                sigmas=True,
                point=cast(ReferencePoint, self.yolo_point),
            )
        )
        return out
