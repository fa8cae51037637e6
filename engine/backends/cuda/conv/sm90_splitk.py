"""Implicit GEMM on Hopper's copy engine and matrix units, in every precision.

float32 runs as three products of tf32 halves of each factor, whose error is below that of Sgemm.
Many tiles compute the same; which is fastest depends on the layer, so each is an algorithm.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.divisor import Divisor
from engine.backends.cuda.conv.tensor_cores import (
    EIGHT,
    HOPPER,
    factors,
    most_shared_bytes,
    whole_eights,
)
from engine.backends.cuda.driver import launch
from engine.backends.cuda.driver.tiles import MODES
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

# By rows, columns, stages, consumers and CTAs on a multiprocessor: the splits of k worth having.
_HALF_TILES = {
    (192, 128, 4, 3, 1): (1,),
    (128, 128, 4, 2, 1): (2,),
    (128, 96, 6, 2, 1): (1, 3),
    (128, 64, 4, 2, 2): (1,),
    (128, 32, 4, 2, 2): (1,),
    (64, 128, 6, 1, 1): (1, 2),
    (64, 128, 4, 1, 2): (4,),
    (64, 128, 2, 1, 4): (1,),
    (64, 96, 5, 1, 2): (1,),
    (64, 64, 8, 1, 1): (1, 2, 3, 4),
    (64, 64, 4, 1, 3): (1,),
    (64, 64, 2, 1, 5): (1,),
    (64, 32, 8, 1, 1): (1, 2, 3, 4, 6),
}
_FLOAT_TILES = {
    (128, 128, 4, 2, 1): (2,),
    (128, 32, 4, 2, 2): (1,),
    (64, 128, 4, 1, 1): (1, 2, 4, 5, 8),
    (64, 64, 6, 1, 1): (1,),
    (64, 64, 3, 1, 3): (1, 2, 4, 6, 8),
    (64, 32, 4, 1, 3): (1, 2, 6),
}
_COSTS = {0: (1680, 57, 6, 3300, 900), 1: (750, 45, 8, 6000, 2100), 2: (315, 25, 3, 2500, 2100)}
_POSTED = 16  # bytes a cycle, from one multiprocessor to others
_CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 8: 15}  # by size, as an H200 says
_MOST_BLOCKS = 1024  # more tiles than this fill the device without a split
_LEAST_STEPS = 4  # slices that each block of a split sums at least

_CHUNK = 16  # bytes that change places together
_CHUNKS_OF_BANKS = 8  # of all banks of shared memory
_WARPS = 4  # of a warpgroup
_LANES_DOWN = 8  # of a warp, one below the other
_EIGHT, _SIXTEEN = 8, 16  # columns and rows of sums that travel together
_EIGHT_BYTES = 32 * 16 + 16  # of those, as in EIGHT_BYTES of the kernel
_ROW_PADDING = 8  # results between rows on their way out, as in ROW_PITCH of the kernel
MOST_SHARED = most_shared_bytes(HOPPER)
ALL_SHARED = 228 << 10  # bytes of a multiprocessor
OF_EACH_BLOCK = 1 << 10  # of them, that a block takes for itself
_LINE_BYTES = 128
_NEAR = 16 << 20  # bytes of a map of which an L2 still has most two convolutions later
BARRIERS = 16  # bytes of both barriers of a stage


@dataclass(frozen=True)
class Sm90Tile:
    """rows x columns of the output for a block; slices of `depth` values along k."""

    rows: int
    columns: int
    depth: int
    stages: int
    consumers: int
    blocks: int  # resident on one multiprocessor
    mode: int
    out_bytes: int
    kinds: tuple[int, int]  # of activation: before and after the residual
    is_whole: bool  # filters come in eights, or have room for them, and lie on 16 bytes
    yolo: int = 0  # what a detection layer does, too: geometry.yolo
    kernel: str = "sm90_splitk"
    upsample: int = 1  # how often a result is repeated, down and across

    @property
    def defines(self) -> Mapping[str, int]:
        repeated = {"REPEATED": self.upsample} if self.upsample > 1 else {}
        return {
            **repeated,
            "BM": self.rows,
            "BN": self.columns,
            "BK": self.depth,
            "STAGES": self.stages,
            "CONSUMERS": self.consumers,
            "BLOCKS": self.blocks,
            "OUT_BYTES": self.out_bytes,
            "KIND": self.kinds[0],
            "LAST": self.kinds[1],
            "WHOLE": int(self.is_whole),
            "YOLO": self.yolo,
        }

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.columns, self.mode)}

    @property
    def value_bytes(self) -> int:
        return 2 if self.mode == 0 else 4

    @property
    def threads(self) -> int:
        return 128 * self.consumers + 32

    @property
    def stage_bytes(self) -> int:
        weights = self.columns * (2 if self.mode == 2 else 1)
        return (self.rows + weights) * self.depth * self.value_bytes

    @property
    def shared_bytes(self) -> int:
        """What comes before an inbox, and what aligns it."""
        return self._before_inbox + 1024

    @property
    def _room(self) -> int:
        """The ring, or the results that take its place."""
        results = self.rows * (self.columns + _ROW_PADDING) * self.out_bytes
        return max(self.stages * self.stage_bytes, results)

    @property
    def _before_inbox(self) -> int:
        """The room, barriers and biases."""
        return self._room + (self.stages + 1) * BARRIERS + 4 * self.columns

    def inbox_bytes(self, split: int) -> int:
        """For the sums of the columns that a block of a cluster finishes."""
        return split * self._sums_bytes(-(-self.columns // (_EIGHT * split)))

    def inbox(self, split: int) -> int:
        """Where it begins: behind the rest where that leaves blocks their neighbours.

        Else in the ring, behind the outbox.
        """
        before, outbox = self._before_inbox, self._outbox_bytes(split)
        size = self.inbox_bytes(split)
        most = min(ALL_SHARED // self.blocks - OF_EACH_BLOCK, MOST_SHARED)
        return before if before + size + 1024 <= most or outbox + size > self._room else outbox

    def shared_by(self, split: int) -> int:
        """Bytes that a block of a cluster has."""
        is_apart = split > 1 and self.inbox(split) == self._before_inbox
        return self.shared_bytes + (self.inbox_bytes(split) if is_apart else 0)

    def can_split(self, split: int) -> bool:
        has_room = self._outbox_bytes(split) <= self._room
        return split == 1 or (has_room and self.shared_by(split) <= MOST_SHARED)

    def _outbox_bytes(self, split: int) -> int:
        """For the sums of all other columns."""
        eights = self.columns // _EIGHT
        return self._sums_bytes(eights - eights // split)

    def _sums_bytes(self, eights: int) -> int:
        return self.rows // _SIXTEEN * eights * _EIGHT_BYTES


class Problem(ctypes.Structure):
    """The struct of the same name in kernels/conv/sm90/sm90_splitk.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bias", "residual", "out", "flag", "weight")),
        ("next", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("next_bytes", "next_share")),
        *(
            (name, ctypes.c_int)
            for name in (
                *("pixels", "filters", "out_h", "out_w", "taps_x", "slices", "steps"),
                *("stride_y", "stride_x", "top", "left", "dilation_y", "dilation_x"),
                *("out_pitch", "residual_pitch", "split", "tiles_n", "is_aligned"),
                *("inbox", "is_residual_far"),
                *("entries", "box"),
            )
        ),
        ("scale_x_y", ctypes.c_float),
        *(
            (f"by_{name}", Divisor)
            for name in ("split", "tiles_n", "out_h", "out_w", "slices", "taps_x")
        ),
    )


def can_run(target: Target, op: ops.Conv2d) -> bool:
    """Whether the copy engine can walk the map: pixels that begin on 16 bytes, small windows."""
    if target.capability != HOPPER or op.groups > 1 or op.signed:
        return False
    if op.src in target.misaligned or op.src.shape.channels * target.value_bytes % 16:
        return False
    reach = [(k - 1) * d for k, d in zip(op.kernel, op.dilation, strict=True)]
    return (
        max(op.kernel) <= 16 and max(reach) < 128 and max(op.stride) <= 8 and max(op.padding) < 128
    )


def depth(target: Target, op: ops.Conv2d) -> int:
    """Values of a slice: a swizzled row of 128 bytes, less where channels are fewer."""
    row = next((r for r in (32, 64) if op.src.shape.channels * target.value_bytes <= r), 128)
    return row // target.value_bytes


def prepare(tile: Sm90Tile, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Weights slice by slice as a slot of the ring has them; split floats: high above low parts."""
    filters = op.weight.shape[0]
    bias = np.zeros(whole_eights(filters), np.float32)
    bias[:filters] = constants.get("bias", 0)
    return {"weight": slices(constants["weight"], tile), "bias": bias}


def slices(weight: Array, tile: Sm90Tile) -> Array:
    """(tiles, slices, parts, columns, chunks) of 16 bytes, swizzled as the units expect them."""
    filters, channels, *kernel = weight.shape
    down, deep = -(-filters // tile.columns), -(-channels // tile.depth)
    lines = np.zeros((down * tile.columns, prod(kernel), deep * tile.depth), np.float32)
    lines[:filters, :, :channels] = weight.transpose(0, 2, 3, 1).reshape(filters, -1, channels)
    chunks = tile.depth * tile.value_bytes // _CHUNK
    parts = np.ascontiguousarray(factors(lines.reshape(len(lines), -1), tile.mode))
    loose = parts.view(f"V{_CHUNK}").reshape(-1, down, tile.columns, prod(kernel) * deep, chunks)
    rows = np.arange(tile.columns)[:, None]
    moved = np.arange(chunks) ^ rows * chunks // _CHUNKS_OF_BANKS % chunks
    swizzled = loose.transpose(1, 3, 0, 2, 4)[:, :, :, rows, moved]
    return np.ascontiguousarray(swizzled).view(parts.dtype)


def filters_by_lanes(weight: Array, filters: int, blocks: int) -> Array:
    """Where filters are rows of products, in an order that leaves each lane with neighbours.

    A warpgroup has `blocks` of 64 rows, of each of which a lane has two, eight apart; what fills up
    the last tile of `filters` is zero.
    """
    missing = -len(weight) % filters
    padded = np.pad(weight, ((0, missing), (0, 0), (0, 0), (0, 0)))
    order = np.arange(len(padded)).reshape(-1, _WARPS, _LANES_DOWN, blocks, 2)
    by_lanes: Array = padded[order.transpose(0, 3, 1, 4, 2).ravel()]
    return by_lanes


def epilogue_params(target: Target, op: ops.Conv2d) -> tuple[int, int, tuple[int, int], bool, int]:
    """How a tile multiplies, and what becomes of its sums."""
    yolo = geometry.yolo(op)
    is_aligned = not {op.out, op.residual} & target.misaligned
    is_whole = is_aligned and (op.out.shape.channels % EIGHT == 0 or yolo > 0)
    mode, out_bytes = MODES[target.precision], target.bytes_of(op.out)
    return mode, out_bytes, geometry.kinds(op), is_whole, yolo


def across(op: ops.Conv2d, tile: Sm90Tile) -> int:
    """Tiles side by side over the filters."""
    return -(-op.out.shape.channels // tile.columns)


def source(gpu: Gpu, op: ops.Conv2d, tile: Sm90Tile) -> launch.Windows:
    channels, height, width = op.src.shape.sides
    return launch.Windows(
        pointer=gpu[op.src],
        kind={0: launch.HALF, 1: launch.TF32, 2: launch.FLOAT}[tile.mode],
        value_bytes=tile.value_bytes,
        rows=gpu.rows(op.src),
        height=height,
        width=width,
        channels=channels,
        pitch=gpu.pitch(op.src),
        kernel=op.kernel,
        stride=op.stride,
        padding=op.padding,
        dilation=op.dilation,
    )


def problem(gpu: Gpu, op: ops.Conv2d, tile: Sm90Tile, *, blocks: int, split: int = 1) -> Problem:
    """`blocks` are those of the grid, each of which calls some of the next weights."""
    residual, residual_pitch = geometry.residual(gpu, op)
    channels, out = op.src.shape.channels, op.grid
    filters = whole_eights(out.channels) if tile.is_whole else out.channels
    deep = -(-channels // tile.depth)
    top, left, _, _ = op.padding
    written = (op.out, op.residual) if op.residual else (op.out,)
    return Problem(
        *(gpu.array(op, "bias"), residual, gpu[op.out], gpu.flag if op.yolo else 0),
        *(gpu.array(op, "weight"), *_next_weights(gpu, blocks)),
        *(gpu.rows(op.out) * out.area, filters),
        *(out.height, out.width, op.kernel[1], deep, op.kernel[0] * op.kernel[1] * deep),
        *(*op.stride, top, left, *op.dilation),
        *(gpu.pitch(op.out), residual_pitch),
        *(split, across(op, tile), int(all(map(gpu.is_aligned, written)))),
        *(tile.inbox(split) if split > 1 else 0, int(_is_residual_far(gpu, op))),
        *geometry.yolo_numbers(op),
        *map(Divisor.of, (split, across(op, tile), out.height, out.width, deep, op.kernel[1])),
    )


def _is_residual_far(gpu: Gpu, op: ops.Conv2d) -> bool:
    residual = op.residual
    return residual is not None and (
        gpu.pixels(residual) * gpu.pitch(residual) * gpu.target.bytes_of(residual) > _NEAR
    )


def _next_weights(gpu: Gpu, blocks: int) -> tuple[int, int, int]:
    """Where they begin, their bytes, and those of a block: whole lines."""
    pointer, size = gpu.next_weights
    lines = -(-size // (blocks * _LINE_BYTES))
    return pointer, size, lines * _LINE_BYTES


@dataclass(frozen=True)
class Sm90Variant(ABC):
    """One shape; its last side is how many blocks are resident on a multiprocessor."""

    sides: tuple[int, ...]

    @property
    def columns(self) -> int:
        return self.sides[1]

    @abstractmethod
    def tile(self, target: Target, op: ops.Conv2d) -> Sm90Tile:
        """What is compiled for a convolution."""

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return 0

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return prepare(self.tile(target, op), op, constants)

    def _resident(self, target: Target) -> int:
        """Blocks that the device holds at once."""
        return target.multiprocessors * self.sides[-1]


def enqueue(
    gpu: Gpu,
    op: ops.Conv2d,
    tile: Sm90Tile,
    source: launch.TensorMap,
    *,
    blocks: int,
    split: int = 1,
) -> None:
    """Launch so many blocks, in clusters that share work, that read the map as `source` says."""
    gpu.tile(tile, tile.shared_by(split)).launch(
        (blocks, 1, 1),
        tile.threads,
        [source, problem(gpu, op, tile, blocks=blocks, split=split)],
        stream=gpu.stream.handle,
        cluster=split,
        early=True,
    )


@dataclass(frozen=True)
class SplitK(Sm90Variant):
    """The sum over k is shared by a cluster of `split` blocks."""

    split: int

    @property
    def name(self) -> str:
        rows, columns, stages, _, blocks = self.sides
        return f"sm90_splitk_{rows}x{columns}x{stages}x{blocks}_split{self.split}"

    @property
    def work(self) -> tuple[int, int, int]:
        """What a block does; others do the same with more or fewer slices on their way."""
        rows, columns = self.sides[:2]
        return rows, columns, self.split

    def tile(self, target: Target, op: ops.Conv2d) -> Sm90Tile:
        rows, columns, stages, consumers, blocks = self.sides
        sizes = (rows, columns, depth(target, op), stages, consumers, blocks)
        repeated = 1 if op.upsample is None else op.upsample.stride
        return Sm90Tile(*sizes, *epilogue_params(target, op), upsample=repeated)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        tiles = _HALF_TILES if target.precision == "float16" else _FLOAT_TILES
        if self.sides not in tiles or not can_run(target, op):
            return False
        if op.upsample is not None and not self.tile(target, op).is_whole:
            return False
        rows, columns = self.sides[:2]
        filters = op.out.shape.channels
        if columns > 32 and columns >= 2 * filters:
            return False
        if self.split == 1:
            return True
        if not self.tile(target, op).can_split(self.split):
            return False
        blocks = _down(target, op, rows) * -(-filters // columns) * self.split
        return blocks <= _MOST_BLOCKS and self._steps(target, op) >= _LEAST_STEPS * self.split

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        blocks = _down(gpu, op, tile.rows) * across(op, tile) * self.split
        windows = launch.windows_map(source(gpu, op, tile), pixels=tile.rows, channels=tile.depth)
        enqueue(gpu, op, tile, windows, blocks=blocks, split=self.split)

    def _steps(self, target: Target, op: ops.Conv2d) -> int:
        return op.kernel[0] * op.kernel[1] * -(-op.src.shape.channels // depth(target, op))

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly: what ranks the tiles before any was measured.

        The numbers are a fit to some hundred timings on an H200: products and bytes that a
        multiprocessor manages in a cycle, the least time of a slice, values finished in a cycle,
        starting a block, and what a split costs.
        """
        tile = self.tile(target, op)
        rate, width, finish, start, split = _COSTS[tile.mode]
        across = -(-op.out.shape.channels // tile.columns)
        most = -(-_down(target, op, tile.rows) * across // _clusters(target, self.split))
        at_once = min(most, tile.blocks)
        products = at_once * tile.rows * tile.columns * tile.depth / rate
        cycles = max(products, at_once * tile.stage_bytes / width, 300)
        block = start + self._steps(target, op) / self.split * cycles
        block += at_once * tile.rows * tile.columns / finish
        if self.split > 1:
            block += split + at_once * tile.rows * tile.columns * 4 * (1 - 1 / self.split) / _POSTED
        return -(-most // tile.blocks) * block


def _clusters(target: Target, size: int) -> int:
    """How many find room at once: each lies inside a part of the card, which few sizes fill."""
    return _CLUSTERS[size] * target.multiprocessors // _CLUSTERS[1]


def _down(run: Gpu | Target, op: ops.Conv2d, rows: int) -> int:
    """Tiles one below the other, of this run or of the largest."""
    return -(-run.rows(op.out) * op.grid.area // rows)


VARIANTS = {
    each.name: each
    for each in (
        SplitK(sides, split)
        for sides, splits in {**_HALF_TILES, **_FLOAT_TILES}.items()
        for split in splits
    )
}


def best(target: Target, op: ops.Conv2d) -> str | None:
    """The variant that should be fastest, or None where none can run."""
    able = [each for each in VARIANTS.values() if each.supports(target, op)]
    return min(able, key=lambda each: each.estimate(target, op)).name if able else None
