"""Implicit GEMM for Hopper, in which a cluster of blocks may divide k (split-K).

float32 runs as three multiplications of split operands (two tf32 values each), more exact than
Sgemm. All tile shapes give the same result; the fastest depends on the layer, so each is an
algorithm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from engine.backends.cuda.conv import kernel_args, sm90_base, tensor_cores
from engine.backends.cuda.driver import launch
from engine.backends.cuda.driver.tiles import MODES
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.target import BLOCK_RESERVED
from engine.plan import ops

# By rows, columns, stages, consumers and blocks on an SM: the splits of k worth having.
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
    (128, 128, 4, 2, 1): (1, 2),
    (128, 64, 5, 2, 1): (1, 2, 3),
    (128, 32, 4, 2, 2): (1,),
    (64, 128, 4, 1, 1): (1, 2, 4, 5, 8),
    (64, 64, 6, 1, 1): (1, 2, 3),
    (64, 64, 3, 1, 3): (1, 2, 4, 6, 8),
    (64, 32, 4, 1, 3): (1, 2, 6),
}
# By mode: multiply-adds and bytes of an SM per cycle, results of the epilogue per cycle, cycles to
# start a block, and cycles that a split costs.
_COSTS = {
    0: (1680, 57, 6, 3300, 900),
    1: (750, 45, 8, 6000, 2100),
    2: (315, 25, 3, 2500, 2100),
    4: (3360, 57, 6, 3300, 900),
}
POSTED = 16  # bytes per cycle from one SM to others
_LEAST_SLICE = 300  # cycles
CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 8: 15}  # that an H200 holds, by size
_MOST_BLOCKS = 1024  # more fill the device without a split
_MOST_STRIDE = 8  # of a tensor map
_LEAST_STEPS = 4  # slices for each block of a split
_PAIR = 2  # slices in a slot
_LEAST_SLICES = 6  # of a ring, so that three slots are left if they are paired

_EIGHT, _SIXTEEN = 8, 16  # columns and rows of sums that are sent together
_EIGHT_BYTES = 32 * 16 + 16  # of those, as in GROUP_BYTES of the kernel
_ROW_PADDING = 8  # results between the rows of the epilogue, as in ROW_PITCH of the kernel


@dataclass(frozen=True)
class SplitKTile(sm90_base.Sm90Tile):
    kernel: str = "sm90_splitk"
    together: Annotated[int, "TOGETHER"] = 1  # slices in a slot of the ring
    split: Annotated[int, "SPLIT"] = 1  # blocks of a cluster, which divide k
    upsample: int = 1  # how often a result is repeated in each direction

    @property
    def defines(self) -> Mapping[str, int]:
        repeated = {"REPEATED": self.upsample} if self.upsample > 1 else {}
        return {**repeated, **super().defines}

    @property
    def threads(self) -> int:
        return 128 * self.consumers + 32

    @property
    def shared_bytes(self) -> int:
        is_inbox_after = self.inbox == self._before_inbox
        return self._before_inbox + self.inbox_bytes * is_inbox_after + sm90_base.ALIGNMENT

    @property
    def ring_bytes(self) -> int:
        """The bytes of the ring of slots; in the epilogue it holds the results."""
        staged = 0 if self.mode == MODES["int8"] else self.out_bytes
        results = self.rows * (self.columns + _ROW_PADDING) * staged
        return max(self.stages * self.together * self.stage_bytes, results)

    @property
    def _before_inbox(self) -> int:
        """The bytes of the ring, barriers and biases."""
        return self.ring_bytes + (self.stages + 1) * sm90_base.BARRIERS + self.bias_bytes

    @property
    def inbox_bytes(self) -> int:
        """The bytes of partial sums of the columns that a block of a cluster owns."""
        return self.split * self._sums_bytes(-(-self.columns // (_EIGHT * self.split)))

    @property
    def inbox(self) -> int:
        """The offset of the inbox.

        It lies after everything else if as many blocks still fit on an SM, else in the ring after
        the outbox.
        """
        if self.split == 1:
            return 0
        before, outbox, size = self._before_inbox, self.outbox_bytes, self.inbox_bytes
        most = min(sm90_base.SM_SHARED // self.blocks - BLOCK_RESERVED, sm90_base.MOST_SHARED)
        fits_after = before + size + sm90_base.ALIGNMENT <= most
        return before if fits_after or outbox + size > self.ring_bytes else outbox

    @property
    def outbox_bytes(self) -> int:
        """The bytes of partial sums of the columns that other blocks own."""
        eights = self.columns // _EIGHT
        return self._sums_bytes(eights - eights // self.split)

    @property
    def has_room(self) -> bool:
        """Whether sums that pass through shared memory fit into the ring."""
        sums = self.inbox_bytes if self.split == 1 else self.outbox_bytes
        return sums <= self.ring_bytes

    def _sums_bytes(self, eights: int) -> int:
        return self.rows // _SIXTEEN * eights * _EIGHT_BYTES


@dataclass(frozen=True)
class SplitK(sm90_base.Sm90Algorithm):
    """One tile shape, with k divided among a cluster of `split` blocks."""

    family = "sm90_splitk"
    pool = keep = yolo = upsample = quarters = int8 = True
    priority = 9

    rows: int
    columns: int
    stages: int  # slices that the ring holds
    consumers: int
    blocks: int
    split: int

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.stages}x{self.blocks}"
        return f"sm90_splitk_{shape}_split{self.split}"

    @property
    def work(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.split

    def tile(self, target: Target, op: ops.Conv2d) -> SplitKTile:
        repeats = 1 if op.upsample is None else op.upsample.stride
        tile = self.tile_of(SplitKTile, target, op, upsample=repeats)
        is_odd = tile.steps(op) % _PAIR > 0
        if is_odd or self.stages < _LEAST_SLICES or tile.mode == MODES["float32"]:
            return tile
        return replace(tile, stages=self.stages // _PAIR, together=_PAIR)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        tiles = _HALF_TILES if target.precision in ("float16", "int8") else _FLOAT_TILES
        shape = (self.rows, self.columns, self.stages, self.consumers, self.blocks)
        if self.split not in tiles.get(shape, ()) or not sm90_base.can_run(target, op):
            return False
        filters = op.out.shape.channels
        tile = self.tile(target, op)
        if (op.upsample is not None and not tile.is_whole) or not sm90_base.fills(
            self.columns, filters
        ):
            return False
        if op.pool is not None and (op.upsample is not None or 2 * max(op.stride) > _MOST_STRIDE):
            return False
        if self.split == 1:
            return op.pool is None or tile.has_room
        if not tile.has_room or tile.shared_bytes > sm90_base.MOST_SHARED:
            return False
        blocks = self._down(target, op) * tile.across(op) * self.split
        return blocks <= _MOST_BLOCKS and tile.steps(op) >= _LEAST_STEPS * self.split

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        if self.split == 1 and op.pool is None:
            return super().prepare(target, op, constants)
        own = tensor_cores.constants_of(target, op, constants)  # filters stay in order
        return sm90_base.prepare(self.tile(target, op), op, own)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        blocks = self._down(gpu, op) * tile.across(op) * tile.split
        arguments = sm90_base.arguments(gpu, op, tile, blocks=blocks, inbox=tile.inbox)
        windows = self._windows(gpu, op, tile)
        tensor_cores.launch(gpu, tile, blocks, windows, arguments, cluster=tile.split)

    def _windows(self, gpu: Gpu, op: ops.Conv2d, tile: SplitKTile) -> ctypes.Structure:
        """Return the tensor map by which the input is loaded."""
        pixels = tile.rows // tile.pool_area
        if op.pool is not None:  # a quarter of the windows for each cell of the pool
            op = _every_other(op)
        source = sm90_base.source(gpu, op, tile)
        return launch.windows_map(source, pixels=pixels, channels=tile.depth)

    def _down(self, run: Gpu | Target, op: ops.Conv2d) -> int:
        """Return the number of tiles for all pixels, of this run or of the largest."""
        pixels = run.rows(op.out) * sm90_base.finished(op).area * kernel_args.pool_area(op)
        return -(-pixels // self.rows)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Rank the tiles by a model that was fitted to timings on an H200."""
        tile = self.tile(target, op)
        rate, width, finish, start, split = _COSTS[tile.mode]
        clusters = max(1, CLUSTERS[self.split] * target.multiprocessors // CLUSTERS[1])
        most = -(-self._down(target, op) * tile.across(op) // clusters)
        at_once = min(most, tile.blocks)
        products = at_once * tile.rows * tile.columns * tile.depth / rate
        cycles = max(products, at_once * tile.stage_bytes / width, _LEAST_SLICE)
        block = start + tile.steps(op) / self.split * cycles
        block += at_once * tile.rows * tile.columns / finish
        if self.split > 1:
            block += split + at_once * tile.rows * tile.columns * 4 * (1 - 1 / self.split) / POSTED
        return -(-most // tile.blocks) * block

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        return self.estimate(target, op)


def _every_other(op: ops.Conv2d) -> ops.Conv2d:
    """Return the windows of the first cells of a pool; a last line outside of it is left out."""
    (top, left, bottom, right), (stride_y, stride_x) = op.padding, op.stride
    bottom -= stride_y * (op.grid.height - 2 * op.out.shape.height)
    right -= stride_x * (op.grid.width - 2 * op.out.shape.width)
    return replace(op, stride=(2 * stride_y, 2 * stride_x), padding=(top, left, bottom, right))


ALGORITHMS = tuple(
    SplitK(*shape, split)
    for shape, splits in {**_HALF_TILES, **_FLOAT_TILES}.items()
    for split in splits
)
