"""Launches over values and windows, for ops and for what other ops are made of."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import KINDS, Gpu
from engine.plan.ops import Multiply, Tensor, Upsample
from engine.plan.shapes import Shape, Window

_DOWN = 4  # of kernels/max_pool.cu


def launch(gpu: Gpu, kernel: str, tensors: tuple[Tensor, ...], *arguments: int | float) -> None:
    """Launch over values: the packed form where every tensor's memory allows it."""
    out = tensors[-1]
    values = gpu.pixels(out) * out.shape.channels
    if gpu.packs(*tensors):
        gpu.launch(f"{kernel}_packed", values * gpu.target.value_bytes // 16, *arguments)
    else:
        gpu.launch(kernel, values, *arguments)


def maps(src: Shape, out: Shape) -> tuple[int, ...]:
    return src.height, src.width, out.height, out.width


def window(window: Window) -> tuple[int, ...]:
    top, left, _, _ = window.padding
    return *window.size, *window.stride, top, left


def max_pool(gpu: Gpu, src: Tensor, out: Tensor, over: Window) -> None:
    sizes = gpu.rows(out), out.shape.channels, *maps(src.shape, out.shape)
    pitches = gpu.pitch(src), gpu.pitch(out)
    if shares_lines(gpu, src, out, over):
        (size, stride), (top, left, _, _) = (over.size, over.stride), over.padding
        groups = gpu.rows(out) * -(-out.shape.height // _DOWN) * out.shape.width
        gpu.launch(
            *("max_pool_down", groups * out.shape.channels * gpu.target.value_bytes // 16),
            *(gpu[src], gpu[out], *sizes, *pitches, *size, stride[1], top, left),
        )
        return
    launch(
        *(gpu, "max_pool", (src, out)),
        *(gpu[src], gpu[out], *sizes, *pitches, *window(over)),
    )


def upsample(gpu: Gpu, op: Upsample) -> None:
    out = op.out.shape
    launch(
        gpu,
        "upsample",
        (op.src, op.out),
        *(gpu[op.src], gpu[op.out], gpu.rows(op.out), out.channels, out.height, out.width),
        *(gpu.pitch(op.src), gpu.pitch(op.out), op.stride, float(op.scale)),
    )


def multiply(gpu: Gpu, op: Multiply) -> None:
    shape, factor = op.out.shape, op.factor.shape
    pitch = gpu.pitch(op.factor)
    packed = (op.src, op.out) if factor.channels == 1 else (op.src, op.factor, op.out)
    launch(
        *(gpu, "multiply", packed),
        *(gpu[op.src], gpu[op.factor], gpu[op.out]),
        *(gpu.rows(op.out), shape.area, shape.channels, gpu.pitch(op.src), gpu.pitch(op.out)),
        *(factor.area * pitch, pitch if factor.area > 1 else 0, 1 if factor.channels > 1 else 0),
        KINDS[op.activation],
    )


def shares_lines(gpu: Gpu, src: Tensor, out: Tensor, over: Window) -> bool:
    """Whether neighbouring windows have most of their lines in common."""
    return over.stride[0] == 1 and over.size[0] > 2 and gpu.packs(src, out)
