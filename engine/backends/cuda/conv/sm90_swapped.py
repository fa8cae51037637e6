"""Hopper's implicit GEMM with filters as rows: tiles as wide as give every multiprocessor as many.

Rows of a product come by 64, but its columns by 8: with pixels as columns a map divides among the
multiprocessors with little left over. As sm90_pingpong.py otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from engine.backends.cuda.conv import sm90_splitk
from engine.backends.cuda.conv.sm90_pingpong import PingPong, PingPongTile
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Target
from engine.plan import ops

# filters, teams, consumers in a team, resident blocks
_SHAPES = (
    (128, 2, 1, 1),
    (256, 1, 2, 1),
)
_MOST_PIXELS = 176  # whose sums a thread has registers for
_LEAST_PIXELS = 64
_LEAST_USED = 0.75  # of the filters of all tiles
_EIGHT = 8  # pixels, the step of a product's columns
_MOST_STAGES = 8


@dataclass(frozen=True)
class SwappedTile(PingPongTile):
    """rows are its pixels and columns its filters, as of every tile."""

    kernel: str = "sm90_swapped"

    @property
    def defines(self) -> Mapping[str, int]:
        return {**super().defines, "BM": self.columns, "BN": self.rows}

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.rows, self.mode)}

    @property
    def shared_bytes(self) -> int:
        """The ring, barriers of turns, and what aligns it."""
        return self.stages * (self.stage_bytes + sm90_splitk.BARRIERS) + 8 * self.teams + 1024


class Swapped(PingPong):
    """filters, teams, consumers in a team, resident blocks."""

    @property
    def columns(self) -> int:
        return self.sides[0]

    @property
    def name(self) -> str:
        filters, teams, *_ = self.sides
        return f"sm90_swapped_{filters}_teams{teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> SwappedTile:
        filters, teams, consumers, blocks = self.sides
        depth, pixels = sm90_splitk.depth(target, op), self._pixels(target, op)
        stage = (pixels + filters) * depth * target.value_bytes + sm90_splitk.BARRIERS
        stages = min((sm90_splitk.MOST_SHARED - 8 * teams - 1024) // stage, _MOST_STAGES)
        return SwappedTile(
            *(
                pixels,
                filters,
                depth,
                stages,
                consumers,
                blocks,
                *sm90_splitk.epilogue_params(target, op),
            ),
            teams=teams,
        )

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        tile = self.tile(target, op)
        blocks = tile.columns // tile.consumers // 64
        weight = sm90_splitk.filters_by_lanes(constants["weight"], tile.columns, blocks)
        made = sm90_splitk.prepare(tile, op, constants)
        return {**made, "weight": sm90_splitk.slices(weight, tile)}

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if (
            target.precision != "float16"
            or op.yolo is not None
            or not sm90_splitk.can_run(target, op)
        ):
            return False
        across = self._across(op)
        if across > self._resident(target):
            return False
        if op.out.shape.channels < _LEAST_USED * across * self.sides[0]:
            return False
        return self._pixels(target, op) >= _LEAST_PIXELS

    def _across(self, op: ops.Conv2d) -> int:
        return -(-op.out.shape.channels // self.sides[0])

    def _pixels(self, target: Target, op: ops.Conv2d) -> int:
        """Of a tile: as few as make the turns that most of them would make."""
        pixels, across = target.rows(op.out) * op.out.shape.area, self._across(op)
        blocks = self._resident(target)
        for turns in count(-(-pixels * across // (blocks * _MOST_PIXELS))):
            down = turns * blocks // across  # tiles one below the other
            wide = -(-pixels // (down * _EIGHT)) * _EIGHT
            if wide <= _MOST_PIXELS:
                return wide
        raise AssertionError


VARIANTS = {each.name: each for each in map(Swapped, _SHAPES)}
