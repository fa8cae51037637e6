"""Convolutions whose tails are written as options."""

from __future__ import annotations

from typing import Any

from engine.plan.ops import Activate, Add, Conv2d, MaxPool, Tensor, Upsample, YoloOutput
from engine.plan.shapes import Shape, Window, window_count

_TAIL = ("activation", "pool", "residual", "last_activation", "yolo", "upsample")


def conv2d(*fields: Any, **options: Any) -> Conv2d:
    """Conv2d(*fields, **options), of which some options are those of with_tail()."""
    tail = {name: options.pop(name) for name in _TAIL if name in options}
    return with_tail(Conv2d(*fields, **options), **tail)


def with_tail(
    conv: Conv2d,
    *,
    activation: str = "linear",
    pool: Window | None = None,
    residual: Tensor | bool | None = None,
    last_activation: str = "linear",
    yolo: dict[str, Any] | None = None,
    upsample: int = 1,
) -> Conv2d:
    """`conv` with a tail of those stages that are given; `residual` is a new tensor if True."""

    first = 1000 * (abs(conv.out.index) + 1)

    def new(shape: Shape) -> Tensor:
        return Tensor(-first - len(conv.tail), shape, conv.out.steps)  # like no other

    if activation != "linear":
        conv = conv.then(Activate(new(conv.out.shape), conv.out, activation))
    if pool is not None:
        sides = (
            window_count(extent, size, stride, before + after)
            for extent, size, stride, before, after in zip(
                *(conv.out.shape.sides[1:], pool.size, pool.stride),
                *(pool.padding[:2], pool.padding[2:]),
                strict=True,
            )
        )
        out = new(Shape(conv.out.shape.channels, *sides))
        conv = conv.then(MaxPool(out, conv.out, pool))
    if residual:
        shape = conv.out.shape
        added = Tensor(-conv.out.index, shape) if residual is True else residual
        conv = conv.then(Add(new(shape), (conv.out, added), activation=last_activation))
    elif last_activation != "linear":
        conv = conv.then(Activate(new(conv.out.shape), conv.out, last_activation))
    if yolo is not None:
        conv = conv.then(YoloOutput(new(conv.out.shape), conv.out, **yolo))
    if upsample > 1:
        channels, height, width = conv.out.shape.sides
        out = new(Shape(channels, height * upsample, width * upsample))
        conv = conv.then(Upsample(out, conv.out, upsample))
    return conv
