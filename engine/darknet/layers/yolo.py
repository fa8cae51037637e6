"""[yolo]: YOLOv3's boxes relative to anchors, and what [Gaussian_yolo] shares with it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.darknet.anchors import Anchors, check_filters, select_anchors
from engine.darknet.layers.base import DetectionLayer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

TRAINING = """
    ignore_thresh truth_thresh iou_thresh iou_thresh_kind iou_loss iou_normalizer obj_normalizer
    cls_normalizer delta_normalizer objectness_smooth label_smooth_eps max max_delta
    counters_per_class focal_loss jitter resize random map show_details
    track_history_size track_ciou_norm sim_thresh dets_for_track dets_for_show embedding_layer
"""


@dataclass(frozen=True)
class YoloBase(DetectionLayer):
    """The options of [yolo] and [Gaussian_yolo]: anchors in pixels, selected by a mask."""

    classes: int = option(20, at_least=1)
    num: int = option(1, at_least=1)  # the number of all anchors; without a mask all are used
    mask: tuple[int, ...] = option((), ends_at="#")
    anchors: tuple[float, ...] = option((), ends_at="#")
    scale_x_y: float = 1.0
    nms_kind: str = "default"
    beta_nms: float = 0.6

    needs_map = True
    nms_kinds: ClassVar[tuple[str, ...]]
    box_values: ClassVar[int]  # channels of an anchor before the classes

    @property
    def nms(self) -> tuple[str, float]:
        """Return kind and exponent of NMS; darknet treats unknown kinds as the default."""
        return (self.nms_kind if self.nms_kind in self.nms_kinds else "default"), self.beta_nms

    @property
    def network_size(self) -> tuple[int, int]:
        return self.context.net.width, self.context.net.height

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self._check_mask()
        anchors = len(self.mask) or self.num
        check_filters(self, shape, anchors=anchors, box_values=self.box_values)
        self.selected_anchors()
        if not self.context.net.width:
            raise self.error("", "expected width and height in [net], got inputs alone")
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        anchors = self.selected_anchors()
        out = plan.emit(
            ops.YoloOutput(
                plan.tensor(src.shape),
                src,
                anchors=len(anchors),
                classes=self.classes,
                scale_x_y=self.scale_x_y,
                **self.of_output(),
            )
        )
        size = self.network_size
        plan.head(ops.YoloHead(out, self.classes, anchors=anchors, network=size, **self.of_head()))
        return out

    @abstractmethod
    def of_output(self) -> dict[str, Any]:
        """Return the arguments of YoloOutput that are specific to this kind of layer."""

    @abstractmethod
    def of_head(self) -> dict[str, Any]:
        """Return the arguments of YoloHead that are specific to this kind of layer."""

    def selected_anchors(self) -> Anchors:
        return select_anchors(self, self.anchors, self.num, self.mask)

    def _check_mask(self) -> None:
        """Check the mask against all listed anchors: published files use more than `num`."""
        pairs = len(self.anchors) // 2
        count = max(self.num, pairs)
        for index in self.mask:
            if not 0 <= index < count:
                raise self.error(
                    "mask",
                    f"expected 0 to {count - 1} with num={self.num} and {pairs} anchors, "
                    f"got {index}",
                )


@layer("yolo", training=TRAINING)
@dataclass(frozen=True)
class Yolo(YoloBase):
    new_coords: bool = False  # the previous layer has applied the logistic function

    nms_kinds = ("default", "greedynms", "diounms")
    box_values = 5

    def of_output(self) -> dict[str, Any]:
        return {"raw": self.new_coords}

    def of_head(self) -> dict[str, Any]:
        return {"new_coords": self.new_coords}
