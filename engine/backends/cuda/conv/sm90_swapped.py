"""Persistent implicit GEMM for Hopper with swapped operands: filters are rows, pixels columns.

Rows of a wgmma come in steps of 64, but columns in steps of 8: the tile width is chosen so that
all SMs get equal work. Otherwise it is like sm90_pingpong.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from engine.backends.cuda.conv import sm90_base, tensor_cores
from engine.backends.cuda.conv.sm90_pingpong import PersistentGemm, PingPongTile
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Target
from engine.plan import ops

_MOST_PIXELS = 176  # per tile; a thread has no registers for the sums of more
_LEAST_PIXELS = 64
_LEAST_USED = 0.75  # share of the tiles' rows that are filters, not padding
_STEPS = {"float16": 8, "int8": 16}  # multiples in which wgmma has columns, by precision
_MOST_STAGES = 8


@dataclass(frozen=True)
class SwappedTile(PingPongTile):
    """A tile whose rows are pixels and columns filters, as in every tile."""

    kernel: str = "sm90_swapped"

    @property
    def defines(self) -> Mapping[str, int]:
        return {**super().defines, "BM": self.columns, "BN": self.rows}

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.rows, self.mode)}

    @property
    def shared_bytes(self) -> int:
        """The bytes of the ring and the order barriers."""
        ring = self.stages * (self.stage_bytes + sm90_base.BARRIERS)
        return ring + 8 * self.teams + sm90_base.ALIGNMENT


@dataclass(frozen=True)
class Swapped(PersistentGemm):
    family = "sm90_swapped"
    int8 = writes_int8 = True

    filters: int
    teams: int
    consumers: int
    blocks: int
    saves_power: bool = False

    @property
    def name(self) -> str:
        return f"sm90_swapped_{self.filters}_teams{self.teams}"

    def tile(self, target: Target, op: ops.Conv2d) -> SwappedTile:
        depth, pixels = sm90_base.depth(target, op), self._pixels(target, op)
        stage = (pixels + self.filters) * depth * target.bytes_of(op.src) + sm90_base.BARRIERS
        free = sm90_base.MOST_SHARED - 8 * self.teams - sm90_base.ALIGNMENT
        own = {"rows": pixels, "columns": self.filters, "stages": min(free // stage, _MOST_STAGES)}
        return self.tile_of(SwappedTile, target, op, **own)

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        tile = self.tile(target, op)
        blocks = tile.columns // tile.consumers // 64
        constants = tensor_cores.constants_of(target, op, constants)
        weight = sm90_base.filters_by_lanes(constants["weight"], tile.columns, blocks)
        return sm90_base.prepare(tile, op, {**constants, "weight": weight})

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.precision not in _STEPS or not sm90_base.can_run(target, op):
            return False
        across = self._across(op)
        if across > self._resident(target):
            return False
        if op.out.shape.channels < _LEAST_USED * across * self.filters:
            return False
        return self._pixels(target, op) >= _LEAST_PIXELS

    def _across(self, op: ops.Conv2d) -> int:
        return -(-op.out.shape.channels // self.filters)

    def _pixels(self, target: Target, op: ops.Conv2d) -> int:
        """Return the fewest pixels of a tile that need no more turns than the widest tile."""
        pixels, across = target.rows(op.out) * op.out.shape.area, self._across(op)
        blocks, step = self._resident(target), _STEPS[target.precision]
        for turns in count(-(-pixels * across // (blocks * _MOST_PIXELS))):
            down = turns * blocks // across  # tiles for all pixels
            wide = -(-pixels // (down * step)) * step
            if wide <= _MOST_PIXELS:
                return wide
        raise AssertionError


ALGORITHMS = (Swapped(128, 2, 1, 1), Swapped(256, 1, 2, 1, saves_power=True))
