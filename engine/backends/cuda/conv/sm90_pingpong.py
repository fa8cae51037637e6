"""Hopper's implicit GEMM for many tiles: blocks stay, and their warpgroups take turns.

For maps that fill the device several times over; smaller ones are hopper.py's, which can split
the sum over k. Many shapes compute the same; each is an algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.backends.cuda.conv import sm90_splitk
from engine.backends.cuda.conv.sm90_splitk import Sm90Tile, Sm90Variant
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

# rows, columns, stages, teams, consumers in a team, resident blocks
_HALF_SHAPES = (
    (128, 128, 6, 2, 1, 1),
    (128, 64, 8, 2, 1, 1),
)
_TF32_SHAPES = ((128, 128, 6, 2, 1, 1),)
_SHAPES = {"float16": _HALF_SHAPES, "tf32": _TF32_SHAPES}
_LEAST_TURNS = 1.5  # tiles for each block: with fewer, staying is no use
_START = 6000  # cycles until a block is under way
_COSTS = {0: (1450, 38, 6), 1: (750, 38, 6)}  # products, bytes, finished values in a cycle


@dataclass(frozen=True)
class PingPongTile(Sm90Tile):
    """rows x columns are a team's, `consumers` its warpgroups."""

    kernel: str = "sm90_pingpong"
    teams: int = 2

    @property
    def defines(self) -> Mapping[str, int]:
        return {**super().defines, "TEAMS": self.teams}

    @property
    def threads(self) -> int:
        return 128 * (self.teams * self.consumers + 1)

    @property
    def shared_bytes(self) -> int:
        """The ring, barriers of turns, biases of two tiles for each team, and what aligns it."""
        ring = self.stages * (self.stage_bytes + sm90_splitk.BARRIERS)
        return ring + 8 * self.teams + 2 * self.teams * self.columns * 4 + 1024


class PingPong(Sm90Variant):
    """rows, columns, stages, teams, consumers in a team, resident blocks."""

    @property
    def name(self) -> str:
        rows, columns, stages, teams, _, blocks = self.sides
        return f"sm90_pingpong_{rows}x{columns}x{stages}x{blocks}_teams{teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> PingPongTile:
        rows, columns, stages, teams, consumers, blocks = self.sides
        sizes = (rows, columns, sm90_splitk.depth(target, op), stages, consumers, blocks)
        return PingPongTile(*sizes, *sm90_splitk.epilogue_params(target, op), teams=teams)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        shapes = _SHAPES.get(target.precision, ())
        if self.sides not in shapes or not sm90_splitk.can_run(target, op):
            return False
        columns, filters = self.sides[1], op.out.shape.channels
        if columns > 32 and columns >= 2 * filters:
            return False
        return self._tiles(target, op, target.rows(op.out)) >= _LEAST_TURNS * self._resident(target)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        blocks = min(self._tiles(gpu.target, op, gpu.rows(op.out)), self._resident(gpu.target))
        windows = launch.windows_map(
            sm90_splitk.source(gpu, op, tile), pixels=tile.rows, channels=tile.depth
        )
        sm90_splitk.enqueue(gpu, op, tile, windows, blocks=blocks)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly, as hopper.py's."""
        tile = self.tile(target, op)
        rate, width, finish = _COSTS[tile.mode]
        steps = op.kernel[0] * op.kernel[1] * -(-op.src.shape.channels // tile.depth)
        area = tile.rows * tile.columns
        products = steps * max(area * tile.depth / rate, tile.stage_bytes / width)
        taking_turns = tile.teams * tile.blocks
        turn = max(products, (products + area / finish) / taking_turns)
        if taking_turns == 1:
            turn = products + area / finish
        turns = -(-self._tiles(target, op, target.rows(op.out)) // self._resident(target))
        return float(_START + turns * turn * tile.blocks)

    def _tiles(self, target: Target, op: ops.Conv2d, rows: int) -> int:
        """Of so many rows of the map: a block that found none would wait for one."""
        tile = self.tile(target, op)
        return -(-rows * op.out.shape.area // tile.rows) * sm90_splitk.across(op, tile)


VARIANTS = {each.name: each for each in map(PingPong, (*_HALF_SHAPES, *_TF32_SHAPES))}
