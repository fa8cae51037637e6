"""Hopper's convolution of patches with pixels as columns: few filters would be too few of them.

Like sm90_direct_tiles.py, but with 64 filters for each warpgroup, blocks of 8 pixels by many lines,
and stride 2 as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.backends.cuda.conv import sm90_splitk
from engine.backends.cuda.conv.sm90_direct_tiles import DirectTile, DirectTiles
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Target
from engine.plan import ops

# lines of a block, filters, stages of a team, teams, resident blocks
_SHAPES = (
    (32, 64, 1, 2, 1),
    (16, 64, 2, 2, 1),
    (16, 64, 2, 3, 1),
    (16, 64, 2, 1, 2),
)
_SHORT_ROW = 64  # bytes
_WIDE = 8  # pixels of a line of a block
_LEAST_FILTERS = 40  # of the rows of a product
_MOST_TILES = 2  # side by side over the filters
_COSTS = {0: (1700, 38, 6), 1: (850, 38, 6)}  # products, bytes, finished values in a cycle


@dataclass(frozen=True)
class SwappedDirectTile(DirectTile):
    """rows are the pixels of a block and columns its filters, as of every tile."""

    kernel: str = "sm90_swapped_direct"
    stride: int = 1

    @property
    def defines(self) -> Mapping[str, int]:
        own = {"BM": self.columns, "BN": self.rows, "STRIDE": self.stride}
        return {**super().defines, **own}

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.rows, self.mode)}

    @property
    def patch(self) -> tuple[int, int]:
        """One of as many as there are steps of a stride down and across."""
        down, across = ((taps - 1) // self.stride for taps in self.taps)
        return self.rows // _WIDE + down, _WIDE + across

    @property
    def patch_bytes(self) -> int:
        return super().patch_bytes * self.stride * self.stride


class SwappedDirect(DirectTiles):
    """lines of a block, columns, stages of a team, teams, resident blocks."""

    strides = frozenset({(1, 1), (2, 2)})
    least_taps = 2
    costs = _COSTS

    @property
    def columns(self) -> int:
        return self.sides[1]

    @property
    def name(self) -> str:
        lines, filters, stages, teams, blocks = self.sides
        return f"sm90_swapped_direct_{filters}x{_WIDE * lines}x{stages}x{blocks}_teams{teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> SwappedDirectTile:
        lines, filters, stages, teams, blocks = self.sides
        depth, stride = sm90_splitk.depth(target, op), op.stride[0]
        if stride > 1:  # four patches share the memory
            depth = min(depth, _SHORT_ROW // target.value_bytes)
        return SwappedDirectTile(
            *(
                _WIDE * lines,
                filters,
                depth,
                stages,
                1,
                blocks,
                *sm90_splitk.epilogue_params(target, op),
            ),
            teams=teams,
            taps=op.kernel,
            slices=-(-op.src.shape.channels // depth),
            stride=stride,
        )

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        tile = self.tile(target, op)
        weight = sm90_splitk.filters_by_lanes(constants["weight"], tile.columns, blocks=1)
        made = sm90_splitk.prepare(tile, op, constants)
        return {**made, "weight": sm90_splitk.slices(weight, tile)}

    def suits(self, filters: int) -> bool:
        return _LEAST_FILTERS <= filters <= _MOST_TILES * self.columns

    def _blocks(self, target: Target, op: ops.Conv2d) -> int:
        """Of pixels."""
        out, lines = op.out.shape, self.sides[0]
        return target.rows(op.out) * -(-out.height // lines) * -(-out.width // _WIDE)


VARIANTS = {each.name: each for each in map(SwappedDirect, _SHAPES)}
