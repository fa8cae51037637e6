"""The sizes and pointers of a convolution by the names of the kernels' parameters."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import KINDS, Gpu
from engine.plan import ops


def strides(op: ops.Conv2d) -> dict[str, int]:
    top, left, _, _ = op.padding
    return {
        "stride_y": op.stride[0],
        "stride_x": op.stride[1],
        "top": top,
        "left": left,
        "dilation_y": op.dilation[0],
        "dilation_x": op.dilation[1],
    }


def window(op: ops.Conv2d) -> dict[str, int]:
    return {"kernel_y": op.kernel[0], "kernel_x": op.kernel[1], **strides(op)}


def maps(op: ops.Conv2d) -> dict[str, int]:
    src, out = op.src.shape, op.out.shape
    return {"height": src.height, "width": src.width, "out_h": out.height, "out_w": out.width}


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


def yolo(op: ops.Conv2d) -> dict[str, float]:
    """Return the values and box values of an anchor, and the scale of x and y."""
    if op.yolo is None:
        return {"entries": 0, "box": 0, "scale_x_y": 0.0}
    entries, box, _, scale = op.yolo.numbers
    return {"entries": entries, "box": box, "scale_x_y": scale}


def tensors(gpu: Gpu, op: ops.Conv2d) -> dict[str, int]:
    return {
        "src": gpu[op.src],
        "weight": gpu.array(op, "weight"),
        "bias": gpu.array(op, "bias"),
        "residual": gpu[op.residual] if op.residual else 0,
        "out": gpu[op.out],
    }


def pitches(gpu: Gpu, op: ops.Conv2d) -> dict[str, int]:
    return {"src_pitch": gpu.pitch(op.src), **output_pitches(gpu, op)}


def output_pitches(gpu: Gpu, op: ops.Conv2d) -> dict[str, int]:
    residual_pitch = gpu.pitch(op.residual) if op.residual else 0
    return {"residual_pitch": residual_pitch, "out_pitch": gpu.pitch(op.out)}


def kinds(op: ops.Conv2d) -> tuple[int, int]:
    """Return the activations before and after the residual is added."""
    return KINDS[op.activation], KINDS[op.last_activation]


def activations(op: ops.Conv2d) -> dict[str, int]:
    kind, last = kinds(op)
    return {"kind": kind, "last": last}


def finish(gpu: Gpu, op: ops.Conv2d) -> None:
    """Enqueue bias, activation and residual over the raw sums that a GEMM left in `out`."""
    bias = gpu.array(op, "bias")
    is_linear = op.activation == op.last_activation == "linear"
    if not bias and is_linear and op.residual is None:
        return
    pixels, channels = gpu.pixels(op.out), op.out.shape.channels
    written = (op.out,) if op.residual is None else (op.out, op.residual)
    storing = gpu.storing(op.out)
    packs = storing.packs(*written)
    storing.launch(
        "bias_activate_packed" if packs else "bias_activate",
        pixels * channels // (16 // storing.target.value_bytes if packs else 1),
        src=gpu[op.out],
        bias=bias,
        residual=gpu[op.residual] if op.residual else 0,
        out=gpu[op.out],
        pixels=pixels,
        channels=channels,
        src_pitch=gpu.pitch(op.out),
        **output_pitches(gpu, op),
        **activations(op),
    )
