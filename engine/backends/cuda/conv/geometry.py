"""The numbers of a convolution in the order in which the kernels take them."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import KINDS, Gpu
from engine.plan import ops


def window(op: ops.Conv2d) -> tuple[int, ...]:
    """kernel_y, kernel_x, stride_y, stride_x, top, left, dilation_y, dilation_x."""
    top, left, _, _ = op.padding
    return *op.kernel, *op.stride, top, left, *op.dilation


def maps(op: ops.Conv2d) -> tuple[int, ...]:
    """height, width, out_h, out_w."""
    return op.src.shape.height, op.src.shape.width, op.out.shape.height, op.out.shape.width


def depth(op: ops.Conv2d) -> int:
    """Values in the window of one output: channels of a group times the kernel's cells."""
    return op.weight.shape[1] * op.weight.shape[2] * op.weight.shape[3]


def cells(op: ops.Conv2d) -> int:
    """Outputs of the convolution for each value of `out`: CELLS of epilogue.cuh."""
    return 1 if op.pool is None else op.pool.size[0] * op.pool.size[1]


def yolo(op: ops.Conv2d) -> int:
    """YOLO of the kernels that make what a detection layer does, too."""
    return 0 if op.yolo is None else 2 if op.yolo.raw else 1


def yolo_numbers(op: ops.Conv2d) -> tuple[int, int, float]:
    """Entries of an anchor, those of its box, and the scale of x, y; zeros where there are none."""
    if op.yolo is None:
        return 0, 0, 0.0
    entries, box, _, scale = op.yolo.numbers
    return entries, box, scale


def residual(gpu: Gpu, op: ops.Conv2d) -> tuple[int, int]:
    """Pointer and pitch of the residual; 0, C's null, where there is none."""
    if op.residual is None:
        return 0, 0
    return gpu[op.residual], gpu.pitch(op.residual)


def kinds(op: ops.Conv2d) -> tuple[int, int]:
    return KINDS[op.activation], KINDS[op.last_activation]


def finish(gpu: Gpu, op: ops.Conv2d) -> None:
    """Bias, activation and residual over the raw sums that a matrix product left in `out`."""
    bias = gpu.array(op, "bias")
    is_linear = op.activation == op.last_activation == "linear"
    if not bias and is_linear and op.residual is None:
        return
    residual_pointer, residual_pitch = residual(gpu, op)
    pixels, channels, pitch = gpu.pixels(op.out), op.out.shape.channels, gpu.pitch(op.out)
    tensors = (op.out,) if op.residual is None else (op.out, op.residual)
    gpu = gpu.storing(op.out)
    packs = gpu.packs(*tensors)
    gpu.launch(
        "bias_activate_packed" if packs else "bias_activate",
        pixels * channels // (16 // gpu.target.value_bytes if packs else 1),
        *(gpu[op.out], bias, residual_pointer, gpu[op.out], pixels, channels),
        *(pitch, residual_pitch, pitch, *kinds(op)),
    )
