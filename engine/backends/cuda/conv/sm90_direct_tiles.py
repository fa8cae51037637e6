"""Direct convolution for Hopper: a patch of the input is loaded once for all taps.

It suits large feature maps of few channels, where im2col would load every pixel once for each tap.
The weights stay in shared memory, and teams of warpgroups take turns, which also helps 1x1
convolutions that memory bounds. All shapes give the same result; each is an algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated

from engine.backends.cuda.conv import sm90_base
from engine.backends.cuda.conv.tensor_cores import launch as launch_tile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.backends.cuda.ops.target import BLOCK_RESERVED
from engine.plan import ops

_SIDE = 8  # a team computes squares of 8 x 8 pixels
_LEAST_USED = 0.75  # share of the squares' pixels that lie on the map
_MOST_TAPS = 5  # in each direction
_MOST_TILES = 4  # that all filters take
_START = 8000  # cycles to start a block and load its weights


@dataclass(frozen=True)
class DirectTile(sm90_base.Sm90Tile):
    """A tile whose rows are the pixels of a team, a square of the feature map."""

    kernel: str = "sm90_direct_tiles"
    teams: Annotated[int, "TEAMS"] = 2
    taps: Annotated[tuple[int, int], "TAPS_Y", "TAPS_X"] = (3, 3)
    slices: Annotated[int, "SLICES"] = 1  # slices of channels

    @property
    def threads(self) -> int:
        return 128 * (self.teams + 1)

    @property
    def patch(self) -> tuple[int, int]:
        """The height and width of the pixels that a square's windows cover."""
        taps_y, taps_x = self.taps
        return _SIDE + taps_y - 1, _SIDE + taps_x - 1

    @property
    def patch_bytes(self) -> int:
        size = prod(self.patch) * self.depth * self.value_bytes
        return -(-size // sm90_base.ALIGNMENT) * sm90_base.ALIGNMENT

    @property
    def shared_bytes(self) -> int:
        """The bytes of weights, patches with two barriers each, a weight barrier, and biases."""
        weights = prod(self.taps) * self.slices * self.columns * self.depth * self.value_bytes
        patches = self.teams * self.stages * (self.patch_bytes + sm90_base.BARRIERS)
        return weights + patches + 16 + self.bias_bytes + sm90_base.ALIGNMENT


@dataclass(frozen=True)
class DirectTiles(sm90_base.Sm90Algorithm):
    family = "sm90_direct_tiles"
    pool = keep = int8 = True

    columns: int
    stages: int  # per team
    teams: int
    blocks: int

    @property
    def name(self) -> str:
        shape = f"{self.columns}x{self.stages}x{self.blocks}"
        return f"sm90_direct_tiles_{shape}_teams{self.teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> DirectTile:
        slices = -(-op.src.shape.channels // sm90_base.depth(target, op))
        own = {"rows": _SIDE * _SIDE, "consumers": 1, "taps": op.kernel, "slices": slices}
        return self.tile_of(DirectTile, target, op, **own)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision not in ("float16", "tf32", "int8") or not sm90_base.can_run(target, op):
            return False
        if op.dilation != (1, 1) or op.stride != (1, 1) or max(op.kernel) > _MOST_TAPS:
            return False
        if op.pool is not None and {op.src, op.out} & target.scales.keys():
            return False
        if op.is_pointwise and target.bytes_of(op.out) > target.bytes_of(op.src):
            return False  # a detection layer, which other algorithms fuse
        filters = op.out.shape.channels
        if filters > _MOST_TILES * self.columns or not sm90_base.fills(self.columns, filters):
            return False
        tile = self.tile(target, op)
        block_bytes = tile.shared_bytes + BLOCK_RESERVED
        if tile.blocks * block_bytes > sm90_base.SM_SHARED:
            return False
        squares = _squares(target, op)
        if target.rows(op.out) * op.grid.area < _LEAST_USED * tile.rows * squares:
            return False
        return tile.teams == 1 or squares * tile.across(op) >= tile.teams * self._resident(target)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        across = tile.across(op)
        height, width = tile.patch
        boxes = launch.boxes_map(
            sm90_base.source(gpu, op, tile), height=height, width=width, channels=tile.depth
        )
        most = _squares(gpu.target, op) * across
        blocks = min(self._resident(gpu.target) // across * across, most)
        arguments = sm90_base.arguments(gpu, op, tile, blocks=blocks)
        launch_tile(gpu, tile, blocks, boxes, arguments)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Return cycles, on the scale of sm90_splitk.py."""
        tile = self.tile(target, op)
        rate, width, finish = sm90_base.TURN_COSTS[tile.mode]
        area = tile.rows * tile.columns
        products = prod(tile.taps) * tile.slices * area * tile.depth / rate
        taking_turns = tile.teams * tile.blocks
        turn = max(
            products,
            tile.slices * tile.patch_bytes / width,
            (products + area / finish) / taking_turns,
        )
        turns = _squares(target, op) * tile.across(op) / target.multiprocessors
        return float(_START + turns * turn)


def _squares(target: Target, op: ops.Conv2d) -> int:
    return target.rows(op.out) * -(-op.grid.height // _SIDE) * -(-op.grid.width // _SIDE)


_SHAPES = ((32, 2, 3, 2), (64, 2, 3, 2), (64, 2, 4, 1), (32, 2, 1, 4), (64, 1, 1, 2))
ALGORITHMS = tuple(DirectTiles(*shape) for shape in _SHAPES)
