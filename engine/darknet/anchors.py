"""Anchors: pairs of width and height that the boxes of detection layers are relative to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.darknet import limits
from engine.darknet.layers.base import DetectionLayer
from engine.darknet.options import option
from engine.plan.shapes import Shape

Anchors = tuple[tuple[float, float], ...]

_MISSING = (0.5, 0.5)  # darknet's, where `num` is more than there are pairs


def pick_anchors(
    layer: DetectionLayer, numbers: tuple[float, ...], num: int, mask: tuple[int, ...] = ()
) -> Anchors:
    """Those that `mask` names, in its order; the first `num` without a mask."""
    if len(numbers) % 2:
        raise layer.error(
            "anchors", f"expected pairs of width and height, got {len(numbers)} numbers"
        )
    for number in numbers:
        if number <= 0:
            raise layer.error("anchors", f"expected numbers above 0, got {number:g}")
    if num > limits.LIST and not mask:
        raise layer.error("num", f"expected at most {limits.LIST}, got {num}")
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return tuple(pairs[index] if index < len(pairs) else _MISSING for index in mask or range(num))


def check_filters(layer: DetectionLayer, shape: Shape, *, anchors: int, numbers: int) -> None:
    """For each anchor a map holds `numbers` of the box and objectness, and the classes."""
    expected = anchors * (numbers + layer.classes)
    if shape.channels != expected:
        raise layer.error(
            "classes",
            f"{anchors} x ({numbers} + {layer.classes} classes) needs filters={expected} "
            f"in the layer before, got {shape.channels}",
        )


@dataclass(frozen=True)
class MaskedLayer(DetectionLayer):
    """What [yolo] and [Gaussian_yolo] share: a mask picks their anchors, which are in pixels."""

    classes: int = option(20, at_least=1)
    num: int = option(1, at_least=1)  # of all anchors; without a mask all are used
    mask: tuple[int, ...] = option((), ends_at="#")
    anchors: tuple[float, ...] = option((), ends_at="#")
    scale_x_y: float = 1.0
    nms_kind: str = "default"
    beta_nms: float = 0.6

    needs_map = True
    nms_kinds: ClassVar[tuple[str, ...]]
    numbers: ClassVar[int]  # of each anchor, besides the classes

    @property
    def nms(self) -> tuple[str, float]:
        """Darknet takes unknown words for the default."""
        return (self.nms_kind if self.nms_kind in self.nms_kinds else "default"), self.beta_nms

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self._check_mask()
        check_filters(self, shape, anchors=len(self.mask) or self.num, numbers=self.numbers)
        self.pick()
        if not self.place.net.width:
            raise self.error("", "expected width and height in [net], got inputs alone")
        return shape

    def pick(self) -> Anchors:
        return pick_anchors(self, self.anchors, self.num, self.mask)

    def _check_mask(self) -> None:
        """Published files list more anchors than `num` says, and use them."""
        pairs = len(self.anchors) // 2
        count = max(self.num, pairs)
        for index in self.mask:
            if not 0 <= index < count:
                raise self.error(
                    "mask",
                    f"expected 0 to {count - 1} with num={self.num} and {pairs} anchors, "
                    f"got {index}",
                )

    @property
    def network(self) -> tuple[int, int]:
        return self.place.net.width, self.place.net.height


TRAINING = """
    ignore_thresh truth_thresh iou_thresh iou_thresh_kind iou_loss iou_normalizer obj_normalizer
    cls_normalizer delta_normalizer objectness_smooth label_smooth_eps max max_delta
    counters_per_class focal_loss jitter resize random map show_details
    track_history_size track_ciou_norm sim_thresh dets_for_track dets_for_show embedding_layer
"""
