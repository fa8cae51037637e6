"""Split-K for 3x3 windows one pixel apart: lines of the map are loaded once for all nine taps.

At small batches TMA bounds sm90_splitk.py: it takes time for each row of im2col, and every pixel is
in nine of them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Annotated

from engine.backends.cuda.conv import sm90_base
from engine.backends.cuda.conv.kernel_args import Divisor, struct
from engine.backends.cuda.conv.sm90_base import ALIGNMENT, BARRIERS, MOST_SHARED
from engine.backends.cuda.conv.sm90_splitk import SplitK, SplitKTile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

# By rows, columns, stages, consumers and blocks on an SM: the splits of k worth having.
_TILES = {
    (192, 32, 9, 3, 1): (1,),
    (128, 64, 8, 2, 1): (1,),
    (64, 64, 8, 1, 1): (1, 2, 4),
    (64, 64, 6, 1, 2): (1, 2),
    (64, 32, 9, 1, 2): (1, 2),
}
_TAPS = 9
_MOST_SIDE = 256  # of what one copy takes
_ROW_CYCLES = 3.3  # in which TMA takes a row of a patch

Args = struct("sm90_lines.cu", "LinesArgs")


@dataclass(frozen=True)
class LinesTile(SplitKTile):
    kernel: str = "sm90_lines"
    are_taps_inside = True
    patches: Annotated[int, "PATCHES"] = 2  # in shared memory
    patch: tuple[int, int] = (1, 1)  # lines, and pixels from one to the next

    @property
    def patch_bytes(self) -> int:
        return prod(self.patch) * self.depth * self.value_bytes

    @property
    def slot_bytes(self) -> int:
        return -(-self.patch_bytes // ALIGNMENT) * ALIGNMENT

    @property
    def weight_bytes(self) -> int:
        """The weights of a tap and a slice of channels."""
        return self.stage_bytes - self.rows * self.depth * self.value_bytes

    @property
    def ring_bytes(self) -> int:
        return self.patches * self.slot_bytes + self.stages * self.weight_bytes

    @property
    def _before_inbox(self) -> int:
        return super()._before_inbox + self.patches * BARRIERS


@dataclass(frozen=True)
class Lines(SplitK):
    family = "sm90_lines"
    pool = keep = upsample = int8 = False
    least_slice = 150

    @property
    def name(self) -> str:
        return super().name.replace("splitk", "lines")

    def tile(self, target: Target, op: ops.Conv2d) -> LinesTile:
        slices = -(-op.src.shape.channels // sm90_base.depth(target, op))
        patches = 1 if self.split % slices == 0 else 2  # where a block has one slice at most
        patch = _lines(op, self.rows), op.src.shape.width + 1
        return self.tile_of(LinesTile, target, op, patches=patches, patch=patch)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision != "float16" or not sm90_base.can_run(target, op):
            return False
        if (op.kernel, op.stride, op.dilation) != ((3, 3), (1, 1), (1, 1)):
            return False
        if op.padding != (1, 1, 1, 1) or op.src.shape.width >= _MOST_SIDE:
            return False
        is_shared = self.tile(target, op).shared_by(self.split) <= MOST_SHARED
        return is_shared and self.fits(target, op)

    def source(self, gpu: Gpu, op: ops.Conv2d) -> tuple[ctypes.Structure, ...]:
        tile = self.tile(gpu.target, op)
        lines, pitch = tile.patch
        source = sm90_base.source(gpu, op, tile)
        tiles = _tiles(op, self.rows)
        args = Args(
            patch_bytes=tile.patch_bytes,
            slot_bytes=tile.slot_bytes,
            tiles=tiles,
            by_pitch=Divisor.by(pitch),
            by_tiles=Divisor.by(tiles),
        )
        return launch.boxes_map(source, height=lines, width=pitch, channels=tile.depth), args

    def down(self, run: Gpu | Target, op: ops.Conv2d) -> int:
        return run.rows(op.out) * _tiles(op, self.rows)

    def loading(self, tile: SplitKTile, width: float) -> float:
        assert isinstance(tile, LinesTile)
        return tile.weight_bytes / width + prod(tile.patch) * _ROW_CYCLES / _TAPS

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        return None  # measure it


def _rows(op: ops.Conv2d) -> int:
    """Return the rows of a product from the first pixel of a map to the last."""
    _, height, width = op.src.shape.sides
    return (height - 1) * (width + 1) + width


def _tiles(op: ops.Conv2d, rows: int) -> int:
    return -(-_rows(op) // rows)


def _lines(op: ops.Conv2d, rows: int) -> int:
    """Return the most lines that the windows of a tile reach."""
    pitch, last = op.src.shape.width + 1, _rows(op) - 1
    ends = (min(start + rows - 1, last) for start in range(0, last + 1, rows))
    reach = ((end + 2 * pitch + 2) // pitch for end in ends)
    starts = (start // pitch for start in range(0, last + 1, rows))
    return max(end - start + 1 for start, end in zip(starts, reach, strict=True))


ALGORITHMS = tuple(Lines(*shape, split) for shape, splits in _TILES.items() for split in splits)
