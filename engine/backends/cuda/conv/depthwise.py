"""Depthwise convolution: direct, with packed loads, because memory bounds it.

Frequent sizes have kernels in which size and stride are constants. These can also sum what they
write for the squeeze-and-excite block that follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import MOST_GRID, Arrays, Gpu, PartialSums, Target
from engine.backends.cuda.ops.pooling import squeeze_of
from engine.plan import ops

MOST_SQUEEZED = 18 << 10  # floats of partial sums of a row: more take longer than they save
_RUN = 4  # outputs of a thread: DEPTHWISE_RUN of the kernel
# Outputs of a thread by (kernel, stride) and threads of a block, for large maps and for small.
_LONG_RUNS = {(3, 1): 4, (3, 2): 2, (5, 1): 4, (5, 2): 2}
_SHORT_RUNS = {(3, 1): 2, (3, 2): 1, (5, 1): 2, (5, 2): 1}
_LONG_THREADS, _SHORT_THREADS = 256, 128  # DEPTHWISE_THREADS, DEPTHWISE_SHORT_THREADS
_WIDTHS = (8, 4, 2, 1)  # packs of channels that a block may take, up to DEPTHWISE_WIDEST
_MOST_BLOCKS = 8  # per SM; more would have to wait until others have ended


@dataclass(frozen=True)
class _Launch:
    """The kernel for one size and stride, and how a row is divided among blocks."""

    kernel: str
    threads: int
    turns: int  # rounds that one block would need for a row
    chunks: int  # groups of channel packs
    wide: int  # packs per chunk: a power of two


class Depthwise(Algorithm):
    name = "depthwise"
    exact = True
    priority = 10

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return op.is_depthwise and op.weight.shape[0] == op.groups and not op.signed

    def partial_sums(self, target: Target, op: ops.Conv2d, gate: ops.Gate) -> PartialSums | None:
        """Return how sums are divided: by the batch of the program, not by that of a run.

        So a picture's results do not depend on what else is in its batch.
        """
        is_aligned = not {op.src, op.out, op.residual} & target.misaligned
        if not _is_fixed(op) or not is_aligned or op.out.shape.channels % target.pack:
            return None
        rows = target.rows(op.out)
        launch = _launch(target, op, rows)
        parts = min(launch.turns, _most_parts(target, launch.chunks * rows))
        sums = PartialSums(gate, parts, launch.chunks)
        return sums if sums.floats <= MOST_SQUEEZED else None

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        weight = constants["weight"][:, 0].transpose(1, 2, 0)
        return {**constants, "weight": np.ascontiguousarray(weight, dtype=np.float32)}

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tensors = [op.src, op.out, *([op.residual] if op.residual else [])]
        packs = gpu.packs(*tensors)
        if packs and _is_fixed(op):
            _enqueue_fixed(gpu, op)
            return
        out = op.out.shape
        runs = gpu.rows(op.out) * out.height * -(-out.width // _RUN)
        items = runs * out.channels // (gpu.target.pack if packs else 1)
        kernel = "depthwise_packed" if packs else "depthwise"
        gpu.launch_op(kernel, op, items)


def _is_fixed(op: ops.Conv2d) -> bool:
    """Return whether size and stride have a kernel of their own."""
    (size, width), (stride, across) = op.kernel, op.stride
    is_square = size == width and stride == across and op.dilation == (1, 1)
    return is_square and (size, stride) in _LONG_RUNS


def _most_parts(target: Target, blocks: int) -> int:
    """Return how many times `blocks` fit on the device."""
    return max(1, target.multiprocessors * _MOST_BLOCKS // blocks)


def _launch(target: Target, op: ops.Conv2d, rows: int) -> _Launch:
    """Choose long runs if they occupy every SM, and whole cache lines if few threads stay idle."""
    size, stride = op.kernel[0], op.stride[0]
    name, lengths, threads = f"depthwise_{size}_{stride}", _LONG_RUNS, _LONG_THREADS
    out = op.out.shape
    lines, packs = rows * out.height, out.channels // target.pack
    if lines * -(-out.width // lengths[size, stride]) * packs < threads * target.multiprocessors:
        name, lengths, threads = f"{name}_short", _SHORT_RUNS, _SHORT_THREADS
    wide = min(_WIDTHS, key=lambda wide: -(-packs // wide) * (wide + 1))
    runs = out.height * -(-out.width // lengths[size, stride])
    return _Launch(name, threads, -(-runs // (threads // wide)), -(-packs // wide), wide)


def _enqueue_fixed(gpu: Gpu, op: ops.Conv2d) -> None:
    """Enqueue a kernel; with partial sums each row has blocks of its own, else all share them."""
    rows, target, sums = gpu.rows(op.out), gpu.target, gpu.annotations.partial_sums
    launch = _launch(target, op, target.rows(op.out) if sums else rows)
    if sums is not None:
        groups, parts = rows, sums.parts
    else:
        groups, parts = 1, min(rows * launch.turns, _most_parts(target, launch.chunks))
    gpu.launch_grid(
        launch.kernel,
        (launch.chunks, min(parts, MOST_GRID), min(groups, MOST_GRID)),
        launch.threads,
        gpu.arguments(op),
        lines=rows * op.out.shape.height // groups,
        wide_bits=launch.wide.bit_length() - 1,
        groups=groups,
        parts=parts,
        squeezed=gpu.workspace if sums else 0,
        **squeeze_of(gpu, sums.gate if sums else None),
    )


ALGORITHMS = (Depthwise(),)
