"""One small kernel for each channel: bound by memory, so a kernel of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.gpu import Arrays, Gpu, Target
from engine.plan import ops

RUN = 4  # DEPTHWISE_RUN of kernels/depthwise.cu
LONG_RUNS = {(3, 1): 4, (3, 2): 2, (5, 1): 4, (5, 2): 2}  # by (kernel, stride): their own kernels
SHORT_RUNS = {(3, 1): 2, (3, 2): 1, (5, 1): 2, (5, 2): 1}
LONG_THREADS, SHORT_THREADS = 256, 128  # DEPTHWISE_THREADS, DEPTHWISE_SHORT_THREADS
WIDEST = 8  # DEPTHWISE_WIDEST
MOST_BLOCKS = 16  # of a multiprocessor; with more a block takes several turns
MOST_SUMS = 18 << 10  # of a row: with more, the gate that adds them up takes longer than is saved
_MOST_GRID = 65535


@dataclass(frozen=True)
class _Launch:
    """Of a kernel for one size and stride: long runs where they occupy every processor."""

    kernel: str
    threads: int
    turns: int  # of a block, for each row
    chunks: int  # of packs
    wide: int  # packs of a chunk


def supports(target: Target, op: ops.Conv2d) -> bool:
    return op.is_depthwise and op.weight.shape[0] == op.groups and not op.signed


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def parts(target: Target, op: ops.Conv2d) -> int:
    """In how many parts of a row it can leave sums of what it puts out; 0: it can not.

    By the rows that the program is for, not those of a run: the same sums for any company.
    """
    tensors = {op.src, op.out, *([op.residual] if op.residual else [])}
    values = 16 // target.value_bytes
    if not _is_fixed(op) or tensors & target.misaligned or op.out.shape.channels % values:
        return 0
    rows = target.rows(op.out)
    launch = _launch(op, rows, op.out.shape.channels // values, target.multiprocessors)
    count = min(launch.turns, -(-target.multiprocessors * MOST_BLOCKS // (launch.chunks * rows)))
    return count if count * op.out.shape.channels <= MOST_SUMS else 0


def sums_bytes(target: Target, out: ops.Tensor) -> int:
    """What the sums of all parts take at most."""
    return 4 * target.rows(out) * MOST_SUMS


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
    if packs and _is_fixed(op):
        _enqueue_fixed(gpu, op, arguments, out.channels // values)
        return
    runs = gpu.rows(op.out) * out.height * -(-out.width // RUN)
    gpu.launch(
        "depthwise_packed" if packs else "depthwise",
        runs * out.channels // values,
        *(*arguments, *geometry.window(op), *geometry.kinds(op)),
    )


def _is_fixed(op: ops.Conv2d) -> bool:
    """Whether its size and stride have kernels of their own."""
    (size, width), (stride, across) = op.kernel, op.stride
    is_square = size == width and stride == across and op.dilation == (1, 1)
    return is_square and (size, stride) in LONG_RUNS


def _launch(op: ops.Conv2d, rows: int, packs: int, processors: int) -> _Launch:
    size, stride = op.kernel[0], op.stride[0]
    name, lengths, threads = f"depthwise_{size}_{stride}", LONG_RUNS, LONG_THREADS
    out = op.out.shape
    lines = rows * out.height
    if lines * -(-out.width // lengths[size, stride]) * packs < threads * processors:
        name, lengths, threads = f"{name}_short", SHORT_RUNS, SHORT_THREADS
    chunks = -(-packs // WIDEST)
    wide = -(-packs // chunks)
    runs = out.height * -(-out.width // lengths[size, stride])
    return _Launch(name, threads, -(-runs // (threads // wide)), chunks, wide)


def _enqueue_fixed(gpu: Gpu, op: ops.Conv2d, arguments: tuple[int, ...], packs: int) -> None:
    """Where sums are wanted each row in parts of its own, otherwise all rows together."""
    rows, processors = gpu.rows(op.out), gpu.target.multiprocessors
    if gpu.parts:
        launch = _launch(op, gpu.target.rows(op.out), packs, processors)
        groups, parts, sums = rows, gpu.parts, gpu.workspace
    else:
        launch = _launch(op, rows, packs, processors)
        most = -(-processors * MOST_BLOCKS // launch.chunks)
        groups, parts, sums = 1, min(rows * launch.turns, most), 0
    gpu.launch_grid(
        launch.kernel,
        (launch.chunks, min(groups * parts, _MOST_GRID), 1),
        launch.threads,
        *(*arguments, *op.padding[:2], launch.wide, *geometry.kinds(op), groups, parts, sums),
    )
