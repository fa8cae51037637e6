"""Means over windows of a map, and over all of it: sums of its parts, then those of the sums."""

from __future__ import annotations

from engine.backends.cuda.ops import windows
from engine.backends.cuda.ops.gpu import Gpu, Target, runs
from engine.plan import ops

_THREADS = 256  # of kernels/average_pool.cu
_PIXELS = (32, 16, 8, 4)  # that one thread of average_parts sums: fewer in small maps
_PACKS = 8  # neighbouring packs that one block of it takes at most: whole lines of the cache
_LEAST_AREA = 33  # pixels; below this a thread for each channel is as fast


def _wide(target: Target, channels: int, values: int) -> int:
    """Packs of so many values that a block of average_parts takes: a power of two of 16 bytes."""
    at_once = 16 // target.value_bytes
    most = min(_PACKS * at_once // values, 32)
    needed = max(-(-channels // values), at_once // values)
    return min(1 << (needed - 1).bit_length(), most)


def _parts(target: Target, src: ops.Tensor) -> int:
    """In how many parts the mean over a map is summed: enough to keep half of the device busy.

    By the rows that the program is for, not those of a run: the same sums for any company.
    """
    values = 16 // target.value_bytes
    channels = -(-src.shape.channels // values) * values
    wide = _wide(target, channels, values)
    chunks = -(-channels // values // wide)
    parts = 1
    for pixels in _PIXELS:
        parts = -(-src.shape.area // (_THREADS // wide * pixels))
        if 2 * target.rows(src) * chunks * parts >= target.multiprocessors:
            break
    return parts


def most_pieces(target: Target, src: ops.Tensor) -> int:
    """In how many parts and chunks of channels sum_parts() leaves what a gate wants, at most."""
    values = 16 // target.value_bytes
    chunks = max(
        -(-src.shape.channels // each // _wide(target, src.shape.channels, each))
        for each in (1, values)
    )
    return _parts(target, src) * chunks


def sum_parts(
    gpu: Gpu, src: ops.Tensor, squeeze: tuple[int, int, int] = (0, 0, 0)
) -> tuple[int, int]:
    """Sums of the parts of each row, as floats in the workspace; how many parts, and chunks.

    `squeeze`: pointer to the weights of a gate's first layer, values from a row to the next, rows.
    """
    rows, channels, parts = gpu.rows(src), src.shape.channels, _parts(gpu.target, src)
    values = 16 // gpu.target.value_bytes if gpu.packs(src) else 1
    wide = _wide(gpu.target, channels, values)
    chunks = -(-channels // values // wide)
    gpu.launch_grid(
        "average_parts" if values == 1 else "average_parts_packed",
        (chunks, min(parts, 65535), min(rows, 65535)),
        _THREADS,
        *(gpu[src], gpu.workspace, rows, channels, src.shape.area, gpu.pitch(src), parts, wide),
        *squeeze,
    )
    return parts, chunks


def _is_summed_in_parts(op: ops.AveragePool) -> bool:
    src = op.src.shape
    is_whole = op.window.size == (src.height, src.width) and op.window.padding == (0, 0, 0, 0)
    return is_whole and op.out.shape.area == 1 and src.area >= _LEAST_AREA


def _average_workspace(target: Target, op: ops.AveragePool) -> int:
    sums = target.rows(op.src) * _parts(target, op.src) * op.src.shape.channels
    return 4 * sums if _is_summed_in_parts(op) else 0


@runs(ops.AveragePool, workspace=_average_workspace)
def average_pool(gpu: Gpu, op: ops.AveragePool) -> None:
    rows, channels = gpu.rows(op.out), op.out.shape.channels
    if _is_summed_in_parts(op):
        parts, _ = sum_parts(gpu, op.src)
        sizes = (rows, channels, op.src.shape.area, parts, gpu.pitch(op.out))
        gpu.launch_grid(
            "average_join",
            (rows * -(-channels // 32), 1, 1),
            _THREADS,
            *(gpu.workspace, gpu[op.out], *sizes),
        )
        return
    gpu.launch(
        "average_pool",
        gpu.pixels(op.out) * channels,
        *(gpu[op.src], gpu[op.out], rows, channels),
        *windows.maps(op.src.shape, op.out.shape),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
        *windows.window(op.window),
    )
