"""What the parameters of kernels stand for, by their names in the C text.

A kernel, or a struct that it takes, gets the arguments whose names it has, so that a name means the
same everywhere:

    src, channels, height, width, area          the pointer to what is read, and its shape
    out, out_channels, out_h, out_w, out_area   the pointer to what is written, and its shape
    rows, pixels                                those of `out` in this run
    X, X_pitch                                  a tensor in the field X of the op, and its pitch
    X                                           a constant or a number in the field X
    kernel_y, size_y, stride_y, dilation_y      of a window; _x likewise, and top and left padding
    kind, last                                  the activations before and after a residual
    groups, group_channels, filters             of a convolution; the last two are those of a group
    is_signed                                   the field `signed` of a convolution, a word of C
    entries, box, scale_x_y                     of the [yolo] layer that is computed with it
    residual_scale, out_factor                  of int8: scale, and inverse scale of `out`
    flag                                        the word that is set if results are not finite

An op function passes what only its kernel knows, and what differs, such as the `pixels` of a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.plan import int8
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import Constant, Conv2d, Head, Op, Tensor, values_of
from engine.plan.shapes import Window

if TYPE_CHECKING:
    from engine.backends.cuda.ops.gpu import Gpu

KINDS = {name: kind for kind, name in enumerate(ACTIVATIONS)}  # the `kind` of the C `activate`


def arguments_of(gpu: Gpu, op: Op | Head | None, src: Tensor, out: Tensor) -> dict[str, Any]:
    """Return the arguments of kernels that compute one tensor from another, as `op` does."""
    groups = getattr(op, "groups", 1)
    return {
        **({} if op is None else _fields(gpu, op)),
        **_place(gpu, "src", src),
        "channels": src.shape.channels,
        "height": src.shape.height,
        "width": src.shape.width,
        "area": src.shape.area,
        **_place(gpu, "out", out),
        "out_channels": out.shape.channels,
        "out_h": out.shape.height,
        "out_w": out.shape.width,
        "out_area": out.shape.area,
        "rows": gpu.rows(out),
        "pixels": gpu.pixels(out),
        "group_channels": src.shape.channels // groups,
        "filters": out.shape.channels // groups,
        "flag": gpu.flag,
    }


def _fields(gpu: Gpu, op: Op | Head) -> dict[str, Any]:
    found: dict[str, Any] = dict(gpu.decoding[op]) if isinstance(op, Head) else {}
    for name, value in values_of(op).items():
        if isinstance(value, Tensor):
            found |= _place(gpu, name, value)
        elif isinstance(value, Window):
            found |= _window(value.padding, size=value.size, stride=value.stride)
        elif isinstance(value, int | float):
            found[name] = value
        elif value is None or isinstance(value, Constant):
            found[name] = gpu.array(op, name)
    if isinstance(op, Conv2d):
        found |= _of_convolution(gpu, op)
    if hasattr(op, "activation"):
        found["kind"] = KINDS[op.activation]
    return found


def _of_convolution(gpu: Gpu, op: Conv2d) -> dict[str, Any]:
    """Return what a convolution has no field for, and zeros for what it lacks."""
    scales, yolo, residual = gpu.target.scales, op.yolo, op.residual
    return {
        **_window(op.padding, kernel=op.kernel, stride=op.stride, dilation=op.dilation),
        **_place(gpu, "residual", residual),
        **_place(gpu, "factor", getattr(op, "factor", None)),
        **_place(gpu, "kept", getattr(op, "kept", None)),
        "is_signed": int(op.signed),
        "last": KINDS[op.last_activation],
        "entries": yolo.entries if yolo else 0,
        "box": yolo.box if yolo else 0,
        "scale_x_y": yolo.scale_x_y if yolo else 0.0,
        "residual_scale": scales.get(residual, 0.0) if residual else 0.0,
        "out_factor": float(int8.inverse(scales[op.out])) if op.out in scales else 0.0,
    }


def _place(gpu: Gpu, name: str, tensor: Tensor | None) -> dict[str, int]:
    pointer, pitch = (gpu[tensor], gpu.pitch(tensor)) if tensor else (0, 0)
    return {name: pointer, f"{name}_pitch": pitch}


def _window(padding: tuple[int, int, int, int], **pairs: tuple[int, int]) -> dict[str, int]:
    """Return `top` and `left`, and each of the pairs with _y and _x."""
    found = {"top": padding[0], "left": padding[1]}
    for name, (y, x) in pairs.items():
        found |= {f"{name}_y": y, f"{name}_x": x}
    return found
