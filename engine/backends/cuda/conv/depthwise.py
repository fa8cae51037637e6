"""One small kernel for each channel: bound by memory, so a kernel of its own."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.gpu import Arrays, Gpu, Target
from engine.plan import ops

RUN = 4  # DEPTHWISE_RUN of kernels/depthwise.cu
LONG_RUNS = {(3, 1): 4, (3, 2): 2, (5, 1): 4, (5, 2): 2}  # by (kernel, stride): their own kernels
SHORT_RUNS = {(3, 1): 2, (3, 2): 1, (5, 1): 2, (5, 2): 1}
LONG_THREADS, SHORT_THREADS = 256, 64  # DEPTHWISE_THREADS, DEPTHWISE_SHORT_THREADS
WIDEST = 8  # DEPTHWISE_WIDEST
MOST_BLOCKS = 16  # of a multiprocessor; with more a block takes several turns


def supports(target: Target, op: ops.Conv2d) -> bool:
    return op.is_depthwise and op.weight.shape[0] == op.groups and not op.signed


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    weight = constants["weight"][:, 0].transpose(1, 2, 0)
    return {**constants, "weight": np.ascontiguousarray(weight, dtype=np.float32)}


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    tensors = [op.src, op.out, *([op.residual] if op.residual else [])]
    packs = gpu.packs(*tensors)
    out = op.out.shape
    pointer, pitch = geometry.residual(gpu, op)
    arguments = (
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out]),
        *(gpu.rows(op.out), out.channels, *geometry.maps(op)),
        *(gpu.pitch(op.src), pitch, gpu.pitch(op.out)),
    )
    values = 16 // gpu.target.value_bytes if packs else 1
    size, stride = op.kernel[0], op.stride[0]
    is_square = op.kernel == (size, size) and op.stride == (stride, stride)
    if packs and is_square and op.dilation == (1, 1) and (size, stride) in LONG_RUNS:
        _enqueue_fixed(gpu, op, arguments, out.channels // values)
        return
    runs = gpu.rows(op.out) * out.height * -(-out.width // RUN)
    gpu.launch(
        "depthwise_packed" if packs else "depthwise",
        runs * out.channels // values,
        *(*arguments, *geometry.window(op), *geometry.kinds(op)),
    )


def _enqueue_fixed(gpu: Gpu, op: ops.Conv2d, arguments: tuple[int, ...], packs: int) -> None:
    """By the kernels for this size and stride: long runs where they occupy every processor."""
    size, stride = op.kernel[0], op.stride[0]
    name, lengths, threads = f"depthwise_{size}_{stride}", LONG_RUNS, LONG_THREADS
    lines, processors = gpu.rows(op.out) * op.out.shape.height, gpu.target.multiprocessors
    if lines * -(-op.out.shape.width // lengths[size, stride]) * packs < threads * processors:
        name, lengths, threads = f"{name}_short", SHORT_RUNS, SHORT_THREADS
    runs = lines * -(-op.out.shape.width // lengths[size, stride])
    chunks = -(-packs // WIDEST)
    wide = -(-packs // chunks)
    turns = -(-runs // (threads // wide))
    most = min(-(-processors * MOST_BLOCKS // chunks), 65535)
    gpu.launch_grid(
        name,
        (chunks, min(turns, most), 1),
        threads,
        *(*arguments, *op.padding[:2], wide, *geometry.kinds(op)),
    )
