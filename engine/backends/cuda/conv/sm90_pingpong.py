"""Persistent implicit GEMM for Hopper, in which teams of warpgroups take turns (ping-pong).

While one team runs the epilogue of its tile, the next multiplies. It suits layers that fill the
device several times over; sm90_splitk.py suits smaller ones.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

from engine.backends.cuda.conv import sm90_base
from engine.backends.cuda.conv.tensor_cores import launch as launch_tile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

_LEAST_TURNS = 1.5  # tiles for each block: with fewer, a persistent kernel gains nothing
_START = 6000  # cycles to start a block


@dataclass(frozen=True)
class PingPongTile(sm90_base.Sm90Tile):
    """A tile of rows x columns for one team of `consumers` warpgroups."""

    kernel: str = "sm90_pingpong"
    teams: Annotated[int, "TEAMS"] = 2

    @property
    def threads(self) -> int:
        return 128 * (self.teams * self.consumers + 1)

    @property
    def shared_bytes(self) -> int:
        """The bytes of the ring, the order barriers, and the biases of two tiles for each team."""
        ring = self.stages * (self.stage_bytes + sm90_base.BARRIERS)
        biases = 2 * self.teams * self.bias_bytes
        return ring + 8 * self.teams + biases + sm90_base.ALIGNMENT


class PersistentGemm(sm90_base.Sm90Algorithm):
    """As many blocks as fit, each of which computes tile after tile."""

    @abstractmethod
    def tile(self, target: Target, op: ops.Conv2d) -> PingPongTile: ...

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        blocks = min(_tiles(tile, op, gpu.rows(op.out)), self._resident(gpu.target))
        source = sm90_base.source(gpu, op, tile)
        windows = launch.windows_map(source, pixels=tile.rows, channels=tile.depth)
        arguments = sm90_base.arguments(gpu, op, tile, blocks=blocks)
        launch_tile(gpu, tile, blocks, windows, arguments)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Return cycles, on the scale of sm90_splitk.py."""
        tile = self.tile(target, op)
        rate, width, finish = sm90_base.TURN_COSTS[tile.mode]
        area = tile.rows * tile.columns
        products = tile.steps(op) * max(area * tile.depth / rate, tile.stage_bytes / width)
        taking_turns = tile.teams * tile.blocks
        turn = max(products, (products + area / finish) / taking_turns)
        turns = -(-_tiles(tile, op, target.rows(op.out)) // self._resident(target))
        return float(_START + turns * turn * tile.blocks)


def _tiles(tile: PingPongTile, op: ops.Conv2d, rows: int) -> int:
    """Return the number of tiles of `rows` rows; a block without a tile would never end."""
    return -(-rows * op.out.shape.area // tile.rows) * tile.across(op)


@dataclass(frozen=True)
class PingPong(PersistentGemm):
    family = "sm90_pingpong"
    yolo = quarters = int8 = True

    rows: int
    columns: int
    stages: int
    teams: int
    consumers: int
    blocks: int
    precisions: tuple[str, ...]

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.stages}x{self.blocks}"
        return f"sm90_pingpong_{shape}_teams{self.teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> PingPongTile:
        return self.tile_of(PingPongTile, target, op)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision not in self.precisions or not sm90_base.can_run(target, op):
            return False
        if not sm90_base.fills(self.columns, op.out.shape.channels):
            return False
        tiles = _tiles(self.tile(target, op), op, target.rows(op.out))
        return tiles >= _LEAST_TURNS * self._resident(target)


ALGORITHMS = (
    PingPong(128, 128, 6, 2, 1, 1, ("float16", "tf32", "int8")),
    PingPong(128, 64, 8, 2, 1, 1, ("float16", "int8")),
)
