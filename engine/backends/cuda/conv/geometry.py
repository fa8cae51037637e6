"""The sizes and pointers of a convolution, by the names of the kernels' parameters."""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.driver import compiler
from engine.backends.cuda.ops.gpu import KINDS, Gpu
from engine.plan import ops


def known(gpu: Gpu, op: ops.Conv2d) -> dict[str, float]:
    """Return the values of the names that mean the same in most kernels."""
    (kind, last), (top, left, _, _) = kinds(op), op.padding
    entries, box, _, scale = op.yolo.numbers if op.yolo else (0, 0, 0, 0.0)
    pitch = gpu.pitch(op.src)
    return {
        "src": gpu[op.src],
        "input": gpu[op.src],
        "weight": gpu.array(op, "weight"),
        "bias": gpu.array(op, "bias"),
        "residual": gpu[op.residual] if op.residual else 0,
        "out": gpu[op.out],
        "rows": gpu.rows(op.out),
        "pixels": gpu.pixels(op.out),
        "groups": op.groups,
        "channels": op.weight.shape[1],
        "filters": filters_of_group(op),
        "height": op.src.shape.height,
        "width": op.src.shape.width,
        "out_h": op.out.shape.height,
        "out_w": op.out.shape.width,
        "pitch": pitch,
        "src_pitch": pitch,
        "residual_pitch": gpu.pitch(op.residual) if op.residual else 0,
        "out_pitch": gpu.pitch(op.out),
        **dict(zip(("kernel_y", "kernel_x"), op.kernel, strict=True)),
        **dict(zip(("taps_y", "taps_x"), op.kernel, strict=True)),
        **dict(zip(("stride_y", "stride_x"), op.stride, strict=True)),
        **dict(zip(("dilation_y", "dilation_x"), op.dilation, strict=True)),
        "top": top,
        "left": left,
        "is_signed": int(op.signed),
        "kind": kind,
        "last": last,
        "entries": entries,
        "box": box,
        "scale_x_y": scale,
        "flag": gpu.flag if op.yolo else 0,
    }


def arguments(kernel: str, gpu: Gpu, op: ops.Conv2d, **own: Any) -> dict[str, Any]:
    """Return the arguments of a kernel: the known ones, and `own` before them."""
    values = known(gpu, op)
    return {name: values[name] for name in compiler.parameters(kernel) if name in values} | own


def depth(op: ops.Conv2d) -> int:
    """Return the values in a window: the channels of a group times the size of the kernel."""
    return op.weight.shape[1] * op.weight.shape[2] * op.weight.shape[3]


def filters_of_group(op: ops.Conv2d) -> int:
    return op.weight.shape[0] // op.groups


def pool_area(op: ops.Conv2d) -> int:
    """Return how many outputs of the convolution are pooled into one: CELLS of the kernels."""
    return 1 if op.pool is None else op.pool.size[0] * op.pool.size[1]


def yolo_mode(op: ops.Conv2d) -> int:
    """Return YOLO of the kernels: 0 without a fused [yolo], 2 where it leaves values raw."""
    return 0 if op.yolo is None else 2 if op.yolo.raw else 1


def kinds(op: ops.Conv2d) -> tuple[int, int]:
    """Return the activations before and after the residual is added."""
    return KINDS[op.activation], KINDS[op.last_activation]


def finish(gpu: Gpu, op: ops.Conv2d) -> None:
    """Enqueue bias, activation and residual over the raw sums that a GEMM left in `out`."""
    is_linear = op.activation == op.last_activation == "linear"
    if not gpu.array(op, "bias") and is_linear and op.residual is None:
        return
    channels = op.out.shape.channels
    sums = {"src": gpu[op.out], "src_pitch": gpu.pitch(op.out), "channels": channels}
    storing = gpu.storing(op.out)
    packs = storing.packs(*((op.out,) if op.residual is None else (op.out, op.residual)))
    kernel = "bias_activate_packed" if packs else "bias_activate"
    items = gpu.pixels(op.out) * channels // (16 // storing.target.value_bytes if packs else 1)
    storing.launch(kernel, items, **arguments(kernel, gpu, op, **sums))
