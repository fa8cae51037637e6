"""Detection layers on the device: their own output, and decoders that keep only rows that count."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops.gpu import THREADS, Arrays, Gpu, Target, decodes, runs
from engine.plan import ops
from engine.plan.ops import Head

REGION_THREADS = 64
_YOLO_BLOCKS = 16  # on a multiprocessor
POINTS = {"center": 0, "left_top": 1, "right_bottom": 2}


@runs(ops.YoloOutput)
def yolo_output(gpu: Gpu, op: ops.YoloOutput) -> None:
    channels = op.out.shape.channels
    threads = min(-(-channels // 32) * 32, THREADS)
    blocks = min(gpu.pixels(op.out), _YOLO_BLOCKS * gpu.target.multiprocessors)
    gpu.launch_grid(
        "yolo_output",
        (blocks, 1, 1),
        threads,
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
        *(*op.numbers, gpu.flag),
    )


def _region_tables(target: Target, op: ops.RegionOutput, constants: Arrays) -> Arrays:
    if not op.runs:
        return {}
    lengths = np.array(op.runs, dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32)
    return {"starts": starts, "lengths": lengths}


@runs(ops.RegionOutput, prepare=_region_tables)
def region_output(gpu: Gpu, op: ops.RegionOutput) -> None:
    gpu.launch_grid(
        "region_output",
        (min(gpu.pixels(op.src) * op.anchors, 1 << 20), 1, 1),
        REGION_THREADS,
        *(gpu[op.src], gpu[op.out], gpu.array(op, "starts"), gpu.array(op, "lengths")),
        *(gpu.pixels(op.src), op.src.shape.area, op.anchors, op.coords, op.classes),
        *(len(op.runs), int(op.background), gpu.pitch(op.src), gpu.pitch(op.out), gpu.flag),
    )


def _record(gpu: Gpu, head: Head) -> tuple[int, int, int]:
    """columns, per_row and first, as every decoder ends its arguments."""
    assert gpu.candidates is not None
    return gpu.candidates.columns, gpu.candidates.per_row, gpu.candidates.firsts[head]


def _buffers(gpu: Gpu) -> tuple[int, int]:
    assert gpu.candidates is not None
    return gpu.candidates.counter, gpu.candidates.records


def _thresholds(gpu: Gpu) -> tuple[int, int]:
    assert gpu.candidates is not None
    return gpu.candidates.threshold, gpu.candidates.hierarchy


def _relative_anchors(target: Target, head: ops.YoloHead, constants: Arrays) -> Arrays:
    return {"anchors": np.divide(head.anchors, head.network).astype(np.float32)}


@decodes(ops.YoloHead, prepare=_relative_anchors)
def yolo_candidates(gpu: Gpu, head: ops.YoloHead) -> None:
    shape = head.src.shape
    gpu.launch(
        "yolo_candidates",
        gpu.pixels(head.src) * len(head.anchors),
        *(gpu[head.src], gpu.array(head, "anchors"), *_buffers(gpu), _thresholds(gpu)[0]),
        *(gpu.rows(head.src), shape.height, shape.width, len(head.anchors), head.classes),
        *(gpu.pitch(head.src), 8 if head.sigmas else 4, int(head.new_coords), POINTS[head.point]),
        *_record(gpu, head),
    )


def _region_arrays(target: Target, head: ops.RegionHead, constants: Arrays) -> Arrays:
    arrays = {"anchors": np.array(head.anchors, dtype=np.float32)}
    if head.tree_parents:
        arrays["parents"] = np.array(head.tree_parents, dtype=np.int32)
    return arrays


def _tree_scratch(target: Target, head: ops.RegionHead) -> int:
    """A place for the probabilities of every class of every anchor, where there is a tree."""
    if not head.tree_parents:
        return 0
    width, height = head.grid
    return 4 * target.rows(head.src) * width * height * len(head.anchors) * head.classes


@decodes(ops.RegionHead, prepare=_region_arrays, workspace=_tree_scratch)
def region_candidates(gpu: Gpu, head: ops.RegionHead) -> None:
    width, height = head.grid
    count = len(head.anchors)
    items = gpu.rows(head.src) * width * height * count
    sizes = (gpu.rows(head.src), height, width, count, head.coords, head.classes)
    if not head.tree_parents:
        gpu.launch(
            "region_candidates",
            items,
            *(gpu[head.src], gpu.array(head, "anchors"), *_buffers(gpu), _thresholds(gpu)[0]),
            *(*sizes, head.classfix, gpu.pitch(head.src), *_record(gpu, head)),
        )
        return
    gpu.launch(
        "tree_candidates",
        items,
        *(gpu[head.src], gpu.array(head, "anchors"), gpu.array(head, "parents")),
        *(*_buffers(gpu), gpu.workspace, *_thresholds(gpu)),
        *(*sizes, head.classfix, gpu.pitch(head.src), *_record(gpu, head)),
    )


@decodes(ops.GridHead)
def grid_candidates(gpu: Gpu, head: ops.GridHead) -> None:
    shape = head.src.shape
    gpu.launch(
        "grid_candidates",
        gpu.rows(head.src) * head.side * head.side * head.boxes,
        *(gpu[head.src], *_buffers(gpu), _thresholds(gpu)[0], gpu.rows(head.src)),
        *(shape.channels, shape.area, gpu.pitch(head.src), head.side, head.boxes, head.classes),
        *(int(head.square_root), *_record(gpu, head)),
    )
