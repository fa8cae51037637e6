"""Max and average pooling. Means of large maps take two kernels: sums of parts, then their sum.

The number of parts depends on the batch that the program was compiled for, not on the rows of a
run, so a picture's result does not depend on the other pictures of its batch.
"""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import MOST_GRID, Gpu, Target, runs
from engine.plan import ops

_THREADS = 256  # as in kernels/ops/average_pool.cu
_PIXELS = (32, 16, 8, 4)  # per thread of average_parts: fewer in small maps
_PACKS = 8  # most neighbouring packs per block: whole cache lines
_CHANNELS = 32  # per block of average_map
_LEAST_AREA = 33  # pixels: in smaller maps a thread for each channel is as fast


def squeeze_of(gpu: Gpu, gate: ops.Gate | None) -> dict[str, int]:
    """Return the first layer of a gate as arguments of a kernel that multiplies sums by it."""
    if gate is None:
        return {"squeeze": 0, "squeeze_pitch": 0, "hidden": 0}
    values = gpu.target.pack
    pitch = -(-gate.src.shape.channels // values) * values  # from one row of weights to the next
    weights, hidden = gpu.array(gate, "squeeze"), gate.squeeze.shape[0]
    return {"squeeze": weights, "squeeze_pitch": pitch, "hidden": hidden}


def _is_global(op: ops.AveragePool) -> bool:
    """Return whether the window is a whole map that is worth two kernels."""
    src = op.src.shape
    is_whole = op.window.size == (src.height, src.width) and op.window.padding == (0, 0, 0, 0)
    return is_whole and op.out.shape.area == 1 and src.area >= _LEAST_AREA


def _part_count(target: Target, src: ops.Tensor) -> int:
    """Return how many parts sum a map: enough to keep half of the card busy."""
    values, channels = target.pack, src.shape.channels
    width = _packs_of_block(target, channels, values)
    chunks = -(-channels // values // width)
    parts = 1
    for pixels in _PIXELS:
        parts = -(-src.shape.area // (_THREADS // width * pixels))
        if 2 * target.rows(src) * chunks * parts >= target.multiprocessors:
            break
    return parts


def most_pieces(target: Target, src: ops.Tensor) -> int:
    """Return the most parts times chunks of channels that sum_parts() may leave."""
    values = target.pack
    channels = src.shape.channels
    chunks = max(
        -(-channels // each // _packs_of_block(target, channels, each)) for each in (1, values)
    )
    return _part_count(target, src) * chunks


def sum_parts(gpu: Gpu, src: ops.Tensor, gate: ops.Gate | None = None) -> int:
    """Enqueue the sums of parts, as float32 in the workspace; return parts times chunks."""
    rows, channels, parts = gpu.rows(src), src.shape.channels, _part_count(gpu.target, src)
    values = gpu.target.pack if gpu.packs(src) else 1
    width = _packs_of_block(gpu.target, channels, values)
    chunks = -(-channels // values // width)
    kernel = "average_parts" if values == 1 else "average_parts_packed"
    grid = chunks, min(parts, MOST_GRID), min(rows, MOST_GRID)
    own = {"sums": gpu.workspace, "parts": parts, "wide": width, **squeeze_of(gpu, gate)}
    gpu.launch_grid(kernel, grid, _THREADS, gpu.arguments(None, src, src), **own)
    return parts * chunks


def _average_map(gpu: Gpu, op: ops.AveragePool) -> None:
    kernel, columns, own = "average_join", 32, {}
    parts = _part_count(gpu.target, op.src)
    if parts > 1:
        sum_parts(gpu, op.src)
        own = {"sums": gpu.workspace, "parts": parts}
    elif gpu.packs(op.src):
        kernel, columns = "average_map_packed", _PACKS * gpu.target.pack
    else:
        kernel, columns = "average_map", _CHANNELS
    blocks = gpu.rows(op.out) * -(-op.out.shape.channels // columns)
    gpu.launch_grid(kernel, (blocks, 1, 1), _THREADS, gpu.arguments(op), **own)


def _packs_of_block(target: Target, channels: int, values: int) -> int:
    """Return the packs of `values` that a block takes: a power of two of 16 bytes."""
    at_once = target.pack
    most = min(_PACKS * at_once // values, 32)
    needed = max(-(-channels // values), at_once // values)
    return min(1 << (needed - 1).bit_length(), most)


def _average_workspace(target: Target, op: ops.AveragePool) -> int:
    parts = _part_count(target, op.src)
    has_sums = _is_global(op) and parts > 1  # a single part becomes means at once
    return 4 * target.rows(op.src) * parts * op.src.shape.channels if has_sums else 0


@runs(ops.AveragePool, workspace=_average_workspace)
def average_pool(gpu: Gpu, op: ops.AveragePool) -> None:
    if _is_global(op):
        _average_map(gpu, op)
    else:
        gpu.launch_op("average_pool", op)


_DOWN = 4  # outputs per thread of max_pool_down, one below the other


@runs(ops.MaxPool)
def max_pool(gpu: Gpu, op: ops.MaxPool) -> None:
    out = op.out.shape
    if shares_lines(gpu, op):
        groups = gpu.rows(op.out) * -(-out.height // _DOWN) * out.width
        packs = groups * out.channels // gpu.target.pack
        gpu.launch_op("max_pool_down", op, packs)
    else:
        gpu.launch_packed("max_pool", op)


def shares_lines(gpu: Gpu, op: ops.MaxPool) -> bool:
    """Return whether neighbouring windows have most of their lines in common."""
    (size, _), (stride, _) = op.window.size, op.window.stride
    return stride == 1 and size > 2 and gpu.packs(op.src, op.out)
