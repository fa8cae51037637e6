"""One small kernel for each channel: bound by memory, so a kernel of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.ops.gpu import Arrays, Gpu, PartialSums, Target
from engine.plan import ops

RUN = 4  # DEPTHWISE_RUN of kernels/depthwise.cu
LONG_RUNS = {(3, 1): 4, (3, 2): 2, (5, 1): 4, (5, 2): 2}  # by (kernel, stride): their own kernels
SHORT_RUNS = {(3, 1): 2, (3, 2): 1, (5, 1): 2, (5, 2): 1}
LONG_THREADS, SHORT_THREADS = 256, 128  # DEPTHWISE_THREADS, DEPTHWISE_SHORT_THREADS
WIDTHS = (8, 4, 2, 1)  # packs of channels that a block may take, up to DEPTHWISE_WIDEST
MOST_BLOCKS = 8  # of a multiprocessor; with more a block takes several turns
MOST_SQUEEZED = 18 << 10  # floats of a row: with more, the gate takes longer than is saved
_MOST_GRID = 65535


@dataclass(frozen=True)
class _Launch:
    """Of a kernel for one size and stride: long runs where they occupy every processor."""

    kernel: str
    threads: int
    turns: int  # of a block, for each row
    chunks: int  # of packs
    wide: int  # packs of a chunk: a power of two


def supports(target: Target, op: ops.Conv2d) -> bool:
    return op.is_depthwise and op.weight.shape[0] == op.groups and not op.signed


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def partial_sums(target: Target, op: ops.Conv2d, gate: ops.Gate) -> PartialSums | None:
    """What it can leave for the gate behind it.

    By the rows that the program is for, not those of a run: the same sums for any company.
    """
    tensors = {op.src, op.out, *([op.residual] if op.residual else [])}
    values = 16 // target.value_bytes
    if not is_fixed(op) or tensors & target.misaligned or op.out.shape.channels % values:
        return None
    rows = target.rows(op.out)
    launch = _launch(op, rows, op.out.shape.channels // values, target.multiprocessors)
    parts = min(launch.turns, _most_parts(target.multiprocessors, launch.chunks * rows))
    left = PartialSums(gate, parts, launch.chunks)
    return left if left.floats <= MOST_SQUEEZED else None


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    weight = constants["weight"][:, 0].transpose(1, 2, 0)
    return {**constants, "weight": np.ascontiguousarray(weight, dtype=np.float32)}


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    tensors = [op.src, op.out, *([op.residual] if op.residual else [])]
    packs = gpu.packs(*tensors)
    out = op.out.shape
    pointer, pitch = geometry.residual(gpu, op)
    pointers = (gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out])
    sizes = (out.channels, *geometry.maps(op), gpu.pitch(op.src), pitch, gpu.pitch(op.out))
    values = 16 // gpu.target.value_bytes if packs else 1
    if packs and is_fixed(op):
        _enqueue_fixed(gpu, op, pointers, sizes)
        return
    runs = gpu.rows(op.out) * out.height * -(-out.width // RUN)
    gpu.launch(
        "depthwise_packed" if packs else "depthwise",
        runs * out.channels // values,
        *(*pointers, gpu.rows(op.out), *sizes, *geometry.window(op), *geometry.kinds(op)),
    )


def is_fixed(op: ops.Conv2d) -> bool:
    """Whether its size and stride have kernels of their own."""
    (size, width), (stride, across) = op.kernel, op.stride
    is_square = size == width and stride == across and op.dilation == (1, 1)
    return is_square and (size, stride) in LONG_RUNS


def wide_of(packs: int) -> int:
    """How many a block takes: whole lines of the cache, unless that leaves many threads idle."""
    return min(WIDTHS, key=lambda wide: -(-packs // wide) * (wide + 1))


def _most_parts(processors: int, others: int) -> int:
    """In how many parts lines are shared out, where so many blocks take the same ones."""
    return max(1, processors * MOST_BLOCKS // others)


def _launch(op: ops.Conv2d, rows: int, packs: int, processors: int) -> _Launch:
    size, stride = op.kernel[0], op.stride[0]
    name, lengths, threads = f"depthwise_{size}_{stride}", LONG_RUNS, LONG_THREADS
    out = op.out.shape
    lines = rows * out.height
    if lines * -(-out.width // lengths[size, stride]) * packs < threads * processors:
        name, lengths, threads = f"{name}_short", SHORT_RUNS, SHORT_THREADS
    wide = wide_of(packs)
    chunks = -(-packs // wide)
    runs = out.height * -(-out.width // lengths[size, stride])
    return _Launch(name, threads, -(-runs // (threads // wide)), chunks, wide)


def _enqueue_fixed(
    gpu: Gpu, op: ops.Conv2d, pointers: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    """For a gate each row in parts of its own, otherwise all rows together."""
    rows, processors = gpu.rows(op.out), gpu.target.multiprocessors
    values = 16 // gpu.target.value_bytes
    packs = op.out.shape.channels // values
    left = gpu.annotations.partial_sums
    if left is not None:
        launch = _launch(op, gpu.target.rows(op.out), packs, processors)
        groups, parts = rows, left.parts
        squeeze = (gpu.array(left.gate, "squeeze"), packs * values, left.gate.squeeze.shape[0])
        squeezed = gpu.workspace
    else:
        launch = _launch(op, rows, packs, processors)
        groups, parts = 1, min(rows * launch.turns, _most_parts(processors, launch.chunks))
        squeeze, squeezed = (0, 0, 0), 0
    gpu.launch_grid(
        launch.kernel,
        (launch.chunks, min(parts, _MOST_GRID), min(groups, _MOST_GRID)),
        launch.threads,
        *(*pointers, rows * op.out.shape.height // groups, *sizes),
        *(*op.padding[:2], launch.wide.bit_length() - 1, *geometry.kinds(op)),
        *(groups, parts, *squeeze, squeezed),
    )
