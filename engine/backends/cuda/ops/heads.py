"""Detection layers: their own output, and decoders that keep only boxes above the threshold."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops.gpu import THREADS, Arrays, Gpu, Target, runs
from engine.backends.cuda.ops.normalisation import run_tables
from engine.plan import ops

_REGION_THREADS = 64
_MOST_REGION_BLOCKS = 1 << 20
_YOLO_BLOCKS = 16  # per multiprocessor
_POINTS = {"center": 0, "left_top": 1, "right_bottom": 2}  # `point` of the kernel


@runs(ops.YoloOutput)
def yolo_output(gpu: Gpu, op: ops.YoloOutput) -> None:
    threads = min(-(-op.out.shape.channels // 32) * 32, THREADS)
    blocks = min(gpu.pixels(op.out), _YOLO_BLOCKS * gpu.target.multiprocessors)
    known = gpu.arguments(op)
    gpu.launch_grid("yolo_output", (blocks, 1, 1), threads, known, entries=op.entries)


@runs(ops.RegionOutput, prepare=lambda target, op, _: run_tables(op.runs) if op.runs else {})
def region_output(gpu: Gpu, op: ops.RegionOutput) -> None:
    blocks = min(gpu.pixels(op.src) * op.anchors, _MOST_REGION_BLOCKS)
    gpu.launch_grid(
        *("region_output", (blocks, 1, 1), _REGION_THREADS, gpu.arguments(op)),
        starts=gpu.array(op, "starts"),
        lengths=gpu.array(op, "lengths"),
        pixels=gpu.pixels(op.src),
        runs=len(op.runs),
    )


def cells(head: ops.Head) -> int:
    """Return the number of candidates that a head can produce for one picture."""
    if isinstance(head, ops.GridHead):
        return head.side * head.side * head.boxes
    if isinstance(head, ops.RegionHead):
        return head.grid[0] * head.grid[1] * len(head.anchors)
    assert isinstance(head, ops.YoloHead), head
    return head.src.shape.area * len(head.anchors)


def _launch(gpu: Gpu, kernel: str, head: ops.Head, **own: int) -> None:
    """Enqueue a decoder, whose work items are the candidates of all pictures."""
    gpu.launch_op(kernel, head, gpu.rows(head.src) * cells(head), **own)


def _anchors(gpu: Gpu, head: ops.YoloHead | ops.RegionHead) -> dict[str, int]:
    return {"anchors": gpu.array(head, "anchors"), "count": len(head.anchors)}


def _relative_anchors(target: Target, head: ops.YoloHead, constants: Arrays) -> Arrays:
    return {"anchors": np.divide(head.anchors, head.network).astype(np.float32)}


@runs(ops.YoloHead, prepare=_relative_anchors)
def yolo_candidates(gpu: Gpu, head: ops.YoloHead) -> None:
    own = {"box": 8 if head.sigmas else 4, "point": _POINTS[head.point]}
    _launch(gpu, "yolo_candidates", head, **_anchors(gpu, head), **own)


def _region_arrays(target: Target, head: ops.RegionHead, constants: Arrays) -> Arrays:
    arrays = {"anchors": np.array(head.anchors, dtype=np.float32)}
    if head.tree_parents:
        arrays["parents"] = np.array(head.tree_parents, dtype=np.int32)
    return arrays


def _tree_scratch(target: Target, head: ops.RegionHead) -> int:
    """Return the bytes of all anchors' class probabilities, for a head with a tree of classes."""
    return 4 * target.rows(head.src) * cells(head) * head.classes if head.tree_parents else 0


@runs(ops.RegionHead, prepare=_region_arrays, workspace=_tree_scratch)
def region_candidates(gpu: Gpu, head: ops.RegionHead) -> None:
    width, height = head.grid
    own = {"height": height, "width": width, **_anchors(gpu, head)}
    kernel = "region_candidates"
    if head.tree_parents:
        kernel = "tree_candidates"
        own |= {"parents": gpu.array(head, "parents"), "scratch": gpu.workspace}
    _launch(gpu, kernel, head, **own)


@runs(ops.GridHead)
def grid_candidates(gpu: Gpu, head: ops.GridHead) -> None:
    _launch(gpu, "grid_candidates", head)
