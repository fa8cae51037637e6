"""Anchors: the widths and heights that the boxes of [yolo] and [region] are relative to."""

from __future__ import annotations

from engine.darknet import network_limits
from engine.darknet.layers.base import DetectionLayer
from engine.plan.shapes import Shape

Anchors = tuple[tuple[float, float], ...]

_MISSING = (0.5, 0.5)  # darknet's value if there are fewer pairs than `num`


def select_anchors(
    layer: DetectionLayer, numbers: tuple[float, ...], num: int, mask: tuple[int, ...] = ()
) -> Anchors:
    """Return the anchors that `mask` lists, in its order; without a mask the first `num`."""
    if len(numbers) % 2:
        raise layer.error(
            "anchors", f"expected pairs of width and height, got {len(numbers)} numbers"
        )
    for number in numbers:
        if number <= 0:
            raise layer.error("anchors", f"expected numbers above 0, got {number:g}")
    if num > network_limits.LIST and not mask:
        raise layer.error("num", f"expected at most {network_limits.LIST}, got {num}")
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return tuple(pairs[index] if index < len(pairs) else _MISSING for index in mask or range(num))


def check_filters(layer: DetectionLayer, shape: Shape, *, anchors: int, box_values: int) -> None:
    """Check the channels: for each anchor the box with its objectness, and the classes."""
    expected = anchors * (box_values + layer.classes)
    if shape.channels != expected:
        raise layer.error(
            "classes",
            f"{anchors} x ({box_values} + {layer.classes} classes) needs filters={expected} "
            f"in the layer before, got {shape.channels}",
        )
