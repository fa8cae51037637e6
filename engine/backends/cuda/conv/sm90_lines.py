"""Split-K for 3x3 convolutions of stride 1: lines are loaded once for all nine taps.

At small batches the path from the L2 to an SM bounds sm90_splitk.py, which loads every pixel nine
times. Filters are the rows of the GEMM and pixels its columns, which come in eights: the width of a
tile is chosen to give every SM a part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from engine.backends.cuda.conv import sm90_base, tensor_cores
from engine.backends.cuda.conv.kernel_args import Divisor, struct
from engine.backends.cuda.conv.sm90_base import ALIGNMENT, BARRIERS, MOST_SHARED
from engine.backends.cuda.conv.sm90_splitk import CLUSTERS, POSTED, SplitKTile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

_FILTERS = 64  # of a warpgroup; only one in a block multiplies
_EIGHT = 8  # pixels: columns of a wgmma come in eights
_MOST_PIXELS = 192  # for whose sums a thread has registers
_SIDE = 3  # of a window
_MOST_SIDE = 256  # of a map: what one copy takes
_RINGS = ((6, 1), (4, 1), (6, 3), (3, 1))  # lines of taps; those loaded before the first patch
_MOST_PATCHES = 8
_FEWEST_STAGES = 2  # a slot is released after the next wgmmas start
_FEW_STAGES = 3  # of which, with two patches, two blocks fit on an SM
_MOST_ROUNDS = 4  # waves of blocks; for more, persistent blocks are faster
_SPLITS = (1, 2, 3, 4, 5, 6, 8)
_RESERVED = 2 << 10  # bytes that barriers, biases and the alignment take at most
_START, _SPLIT = 3000, 1500  # cycles before and after the mainloop, and those of a split

Args = struct("sm90_lines.cu", "LinesArgs")


@dataclass(frozen=True)
class LinesTile(SplitKTile):
    """A tile whose rows are filters and columns pixels."""

    kernel: str = "sm90_lines"
    patches: Annotated[int, "PATCHES"] = 1  # in shared memory
    early: Annotated[int, "EARLY"] = 1  # stages whose weights are loaded before the first patch
    patch: tuple[int, int] = (1, 1)  # lines, and pixels from one to the next

    are_taps_inside = True

    @property
    def patch_bytes(self) -> int:
        return prod(self.patch) * self.depth * self.value_bytes

    @property
    def slot_bytes(self) -> int:
        return -(-self.patch_bytes // ALIGNMENT) * ALIGNMENT

    @property
    def line_bytes(self) -> int:
        """The bytes of the weights of a line of taps."""
        return _SIDE * self.rows * self.depth * self.value_bytes

    @property
    def ring_bytes(self) -> int:
        return self.patches * self.slot_bytes + self.stages * self.line_bytes

    @property
    def _before_inbox(self) -> int:
        return self.ring_bytes + (self.stages + self.patches + 1) * BARRIERS + 4 * self.rows

    def across(self, op: ops.Conv2d) -> int:
        return -(-op.out.shape.channels // self.rows)


@dataclass(frozen=True)
class Lines(sm90_base.Sm90Algorithm):
    """One size of the ring, with k divided among a cluster of `split` blocks."""

    family = "sm90_lines"
    priority = 9

    ring: int  # lines of taps whose weights it holds
    early: int  # those that are loaded before the first patch
    split: int

    @property
    def name(self) -> str:
        return f"sm90_lines_{self.ring}x{self.early}_split{self.split}"

    def tile(self, target: Target, op: ops.Conv2d) -> LinesTile:
        columns = self._columns(target, op) or _MOST_PIXELS
        lines = _lines(op, columns), op.src.shape.width + 1
        slices = -(-_slices(target, op) // self.split)  # of a block
        own = {"rows": _FILTERS, "columns": columns, "stages": 0, "consumers": 1, "blocks": 1}
        tile = self.tile_of(LinesTile, target, op, **own, patches=min(2, slices), patch=lines)
        room = MOST_SHARED - _RESERVED - tile.inbox_bytes - tile.ring_bytes
        stages = min(room // tile.line_bytes, slices * _SIDE, self.ring)
        if self.ring <= _FEW_STAGES:
            return replace(tile, stages=stages)
        patches = tile.patches + (room - stages * tile.line_bytes) // tile.slot_bytes
        return replace(tile, stages=stages, patches=min(patches, slices, _MOST_PATCHES))

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision != "float16" or not sm90_base.can_run(target, op):
            return False
        if (op.kernel, op.stride, op.dilation) != ((3, 3), (1, 1), (1, 1)):
            return False
        if op.padding != (1, 1, 1, 1) or op.src.shape.width >= _MOST_SIDE:
            return False
        if self.split > _slices(target, op) or self._columns(target, op) is None:
            return False
        tile = self.tile(target, op)
        return tile.stages >= _FEWEST_STAGES and tile.has_room

    def _columns(self, target: Target, op: ops.Conv2d) -> int | None:
        """Return the fewest columns of a tile that need no more waves than the widest tile."""
        rounds = self._rounds(target, op, _MOST_PIXELS)
        if rounds > _MOST_ROUNDS:
            return None
        widths = range(_EIGHT * self.split, _MOST_PIXELS, _EIGHT)
        able = (each for each in widths if self._rounds(target, op, each) == rounds)
        return next(able, _MOST_PIXELS)

    def _rounds(self, target: Target, op: ops.Conv2d, columns: int) -> int:
        """Return the number of waves of clusters."""
        tiles = target.rows(op.out) * _tiles(op, columns) * -(-op.out.shape.channels // _FILTERS)
        return -(-tiles // max(1, CLUSTERS[self.split] * target.multiprocessors // CLUSTERS[1]))

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        tile = self.tile(target, op)
        by_filters = replace(tile, columns=tile.rows)
        return sm90_base.prepare(by_filters, op, tensor_cores.constants_of(target, op, constants))

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        tiles, (lines, pitch) = _tiles(op, tile.columns), tile.patch
        blocks = gpu.rows(op.out) * tiles * tile.across(op) * tile.split
        arguments = sm90_base.arguments(gpu, op, tile, blocks=blocks, inbox=tile.inbox)
        source = sm90_base.source(gpu, op, tile)
        boxes = launch.boxes_map(source, height=lines, width=pitch, channels=tile.depth)
        own = Args(
            patch_bytes=tile.patch_bytes,
            slot_bytes=tile.slot_bytes,
            tiles=tiles,
            by_pitch=Divisor.by(pitch),
            by_tiles=Divisor.by(tiles),
        )
        tensor_cores.launch(gpu, tile, blocks, boxes, own, arguments, cluster=tile.split)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        tile = self.tile(target, op)
        taps = -(-_slices(target, op) // self.split) * _SIDE**2
        products = 2 * _FILTERS + tile.columns  # cycles in which shared memory is written and read
        cycles = float(_START + taps * max(products, 2 * tile.columns))
        if self.split > 1:
            cycles += _SPLIT + _FILTERS * tile.columns * 4 / POSTED
        return self._rounds(target, op, tile.columns) * cycles


def _slices(target: Target, op: ops.Conv2d) -> int:
    return -(-op.src.shape.channels // sm90_base.depth(target, op))


def _rows(op: ops.Conv2d) -> int:
    """Return the columns of the GEMM from the first pixel of a row to the last."""
    _, height, width = op.src.shape.sides
    return (height - 1) * (width + 1) + width


def _tiles(op: ops.Conv2d, columns: int) -> int:
    return -(-_rows(op) // columns)


def _lines(op: ops.Conv2d, columns: int) -> int:
    """Return the most lines that the windows of a tile cover."""
    pitch, last = op.src.shape.width + 1, _rows(op) - 1
    ends = (min(start + columns - 1, last) for start in range(0, last + 1, columns))
    reach = ((end + 2 * pitch + 2) // pitch for end in ends)
    starts = (start // pitch for start in range(0, last + 1, columns))
    return max(end - start + 1 for start, end in zip(starts, reach, strict=True))


ALGORITHMS = tuple(Lines(*ring, split) for ring in _RINGS for split in _SPLITS)
