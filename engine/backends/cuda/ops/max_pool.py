"""Max pooling over windows, and over channels."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import Gpu, window_sizes
from engine.backends.cuda.ops.registry import runs
from engine.plan import ops

_DOWN = 4  # outputs of a thread of max_pool_down, one below the other


@runs(ops.MaxPool)
def max_pool(gpu: Gpu, op: ops.MaxPool) -> None:
    sizes, out = window_sizes(op.window), op.out.shape
    if shares_lines(gpu, op):
        del sizes["stride_y"]
        groups = gpu.rows(op.out) * -(-out.height // _DOWN) * out.width
        packs = groups * out.channels * gpu.target.value_bytes // 16
        gpu.launch_map("max_pool_down", op.src, op.out, packs, **sizes)
    else:
        gpu.launch_packed("max_pool", op.src, op.out, **sizes)


def shares_lines(gpu: Gpu, op: ops.MaxPool) -> bool:
    """Whether neighbouring windows have most of their lines in common."""
    (size, _), (stride, _) = op.window.size, op.window.stride
    return stride == 1 and size > 2 and gpu.packs(op.src, op.out)


@runs(ops.MaxPoolDepth)
def max_pool_depth(gpu: Gpu, op: ops.MaxPoolDepth) -> None:
    gpu.launch_map("max_pool_depth", op.src, op.out)
