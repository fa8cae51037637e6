"""Hopper's convolution of patches: what windows share is brought once, the weights stay.

For large maps of few channels, where im2col would bring every pixel once for each tap. Windows of
one pixel share nothing, but what memory bounds gains from weights that stay and teams that take
turns. Many shapes compute the same; each is an algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from engine.backends.cuda.conv import sm90_splitk
from engine.backends.cuda.conv.sm90_splitk import Sm90Tile, Sm90Variant
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

# columns, stages of a team, teams, resident blocks
_SHAPES = (
    (32, 2, 3, 2),
    (64, 2, 3, 2),
    (64, 2, 4, 1),
)
_SIDE = 8  # of a block of pixels
_LEAST_USED = 0.75  # of the pixels in those blocks
_MOST_TAPS = 5  # along a side
_MOST_TILES = 4  # side by side over the filters
_START = 8000  # cycles until a block is under way, with its weights
_COSTS = {0: (1450, 38, 6), 1: (750, 38, 6)}  # products, bytes, finished values in a cycle


@dataclass(frozen=True)
class DirectTile(Sm90Tile):
    """rows are those of a team: a block of pixels."""

    kernel: str = "sm90_direct_tiles"
    teams: int = 2
    taps: tuple[int, int] = (3, 3)
    slices: int = 1  # of channels

    @property
    def defines(self) -> Mapping[str, int]:
        taps_y, taps_x = self.taps
        return {
            **super().defines,
            "TEAMS": self.teams,
            "TAPS_Y": taps_y,
            "TAPS_X": taps_x,
            "SLICES": self.slices,
        }

    @property
    def threads(self) -> int:
        return 128 * (self.teams + 1)

    @property
    def patch(self) -> tuple[int, int]:
        """Its height and width."""
        taps_y, taps_x = self.taps
        return _SIDE + taps_y - 1, _SIDE + taps_x - 1

    @property
    def patch_bytes(self) -> int:
        """Of its place in shared memory."""
        size = prod(self.patch) * self.depth * self.value_bytes
        return -(-size // 1024) * 1024

    @property
    def shared_bytes(self) -> int:
        """The weights, patches with two barriers each, one more, biases, and what aligns it all."""
        weights = prod(self.taps) * self.slices * self.columns * self.depth * self.value_bytes
        patches = self.teams * self.stages * (self.patch_bytes + 16)
        return weights + patches + 8 + 4 * self.columns + 1024


class DirectTiles(Sm90Variant):
    """columns, stages of a team, teams, resident blocks."""

    strides = frozenset({(1, 1)})
    least_taps = 1  # along a side
    costs = _COSTS

    @property
    def name(self) -> str:
        columns, stages, teams, blocks = self.sides
        return f"sm90_direct_tiles_{columns}x{stages}x{blocks}_teams{teams}"

    @property
    def columns(self) -> int:
        return self.sides[0]

    def tile(self, target: Target, op: ops.Conv2d) -> DirectTile:
        columns, stages, teams, blocks = self.sides
        depth = sm90_splitk.depth(target, op)
        return DirectTile(
            *(
                _SIDE * _SIDE,
                columns,
                depth,
                stages,
                1,
                blocks,
                *sm90_splitk.epilogue_params(target, op),
            ),
            teams=teams,
            taps=op.kernel,
            slices=-(-op.src.shape.channels // depth),
        )

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision not in ("float16", "tf32") or not sm90_splitk.can_run(target, op):
            return False
        if op.yolo is not None or op.dilation != (1, 1) or op.stride not in self.strides:
            return False
        if max(op.kernel) > _MOST_TAPS or min(op.kernel) < self.least_taps:
            return False
        if op.is_pointwise and target.bytes_of(op.out) > target.bytes_of(op.src):
            return False  # a detection layer, which others make whole
        if not self.suits(op.out.shape.channels):
            return False
        tile = self.tile(target, op)
        if tile.blocks * (tile.shared_bytes + sm90_splitk.OF_EACH_BLOCK) > sm90_splitk.ALL_SHARED:
            return False
        blocks = self._blocks(target, op)
        if target.rows(op.out) * op.out.shape.area < _LEAST_USED * tile.rows * blocks:
            return False
        return blocks * sm90_splitk.across(op, tile) >= tile.teams * self._resident(target)

    def suits(self, filters: int) -> bool:
        """Whether so many filters fill its tiles, and few of them."""
        columns = self.columns
        return filters <= _MOST_TILES * columns and (columns <= 32 or columns < 2 * filters)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        across = sm90_splitk.across(op, tile)
        blocks = self._resident(gpu.target) // across * across
        height, width = tile.patch
        boxes = launch.boxes_map(
            sm90_splitk.source(gpu, op, tile),
            height=height,
            width=width,
            channels=tile.depth,
            stride=op.stride[0],
        )
        sm90_splitk.enqueue(gpu, op, tile, boxes, blocks=blocks)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly, as hopper.py's."""
        tile = self.tile(target, op)
        rate, width, finish = self.costs[tile.mode]
        area = tile.rows * tile.columns
        products = prod(tile.taps) * tile.slices * area * tile.depth / rate
        taking_turns = tile.teams * tile.blocks
        turn = max(
            *(products, tile.slices * tile.patch_bytes / width),
            (products + area / finish) / taking_turns,
        )
        turns = self._blocks(target, op) * sm90_splitk.across(op, tile) / target.multiprocessors
        return float(_START + turns * turn)

    def _blocks(self, target: Target, op: ops.Conv2d) -> int:
        """Of pixels."""
        out = op.out.shape
        return target.rows(op.out) * -(-out.height // _SIDE) * -(-out.width // _SIDE)


VARIANTS = {each.name: each for each in map(DirectTiles, _SHAPES)}
