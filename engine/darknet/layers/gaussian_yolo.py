"""[Gaussian_yolo]: [yolo] with an uncertainty for each box coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from engine.darknet.layers.base import layer
from engine.darknet.layers.yolo import TRAINING, YoloBase
from engine.darknet.options import option

ReferencePoint = Literal["center", "left_top", "right_bottom"]


@layer("Gaussian_yolo", training=f"{TRAINING} uc_normalizer")
@dataclass(frozen=True)
class GaussianYolo(YoloBase):
    # the point of the box that x, y refer to
    yolo_point: str = option("center", choices=get_args(ReferencePoint))

    nms_kinds = ("default", "greedynms", "diounms", "cornersnms")
    box_values = 9  # each of the four coordinates has a sigma

    def of_output(self) -> dict[str, Any]:
        return {"box": 8}

    def of_head(self) -> dict[str, Any]:
        return {"sigmas": True, "point": cast(ReferencePoint, self.yolo_point)}
