"""3x3 at stride 1 on Hopper with every input fetched once: nine taps are views of one patch.

Pays where a map is wide and has many positions: fetching, not multiplying, is what the nine-fold
reading of hopper.py runs into there.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from engine.backends.cuda import launch
from engine.backends.cuda.conv import hopper
from engine.backends.cuda.conv.hopper import HopperTile
from engine.backends.cuda.gpu import Arrays, Gpu, Target
from engine.backends.cuda.tensor import MODES
from engine.plan import ops

# positions, filters, stages of weights, consumers, blocks on a multiprocessor
_TILES = (
    (256, 128, 4, 2, 1),
    (256, 128, 3, 2, 1),
    (256, 64, 4, 2, 1),
    (256, 64, 3, 2, 2),
    (256, 32, 4, 2, 2),
    (128, 256, 3, 2, 1),
    (128, 128, 4, 2, 1),
    (128, 128, 2, 2, 2),
    (128, 64, 3, 2, 2),
)
_MOST_PATCHES = 3
_BARRIERS = 256  # bytes that hold all of them, and what aligns the ring besides
_SHARED_BYTES = 227 << 10  # what a multiprocessor has for blocks
_MOST_SIDE = 256  # of a box that the copy engine moves


class Lines(ctypes.Structure):
    """The struct of the same name in kernels/tensor/hopper_patch.cu."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in (
            *("images", "height", "width", "tiles_q", "tiles"),
            *("patches", "patch_bytes", "patch_rows"),
        )
    )


@dataclass(frozen=True)
class Patch:
    """One tile shape."""

    sides: tuple[int, int, int, int, int]

    @property
    def name(self) -> str:
        rows, columns, stages, _, blocks = self.sides
        return f"patch_{rows}x{columns}x{stages}x{blocks}"

    def tile(self, target: Target, op: ops.Conv2d) -> HopperTile:
        rows, columns, stages, consumers, blocks = self.sides
        mode = MODES[target.precision]
        depth = hopper.depth(target, op)
        return HopperTile(rows, columns, depth, stages, consumers, blocks, mode, "hopper_patch")

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if not hopper.can_run(target, op):
            return False
        is_same = op.padding == (1, 1, 1, 1) and op.stride == op.dilation == (1, 1)
        if op.kernel != (3, 3) or not is_same or op.src.shape.width + 2 > _MOST_SIDE:
            return False
        rows, columns = self.sides[:2]
        if columns >= 2 * op.out.shape.channels or self._lines(op) > _MOST_SIDE:
            return False
        if MODES[target.precision] == 2 and rows * columns > 128 * 128:
            return False  # twice the sums do not fit into registers
        return self._patches(target, op) > 0

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return 0

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return hopper.prepare(target, op, constants, columns=self.sides[1])

    def _lines(self, op: ops.Conv2d) -> int:
        """Lines that hold the windows of any run of positions: one may begin anywhere in a line."""
        padded = op.src.shape.width + 2
        return (padded - 1 + self.sides[0] - 1 + 2 * padded + 2) // padded + 1

    def _patch_rows(self, op: ops.Conv2d) -> int:
        return self._lines(op) * (op.src.shape.width + 2)

    def _patch_bytes(self, target: Target, op: ops.Conv2d) -> int:
        tile = self.tile(target, op)
        size = self._patch_rows(op) * tile.depth * tile.value_bytes
        return -(-size // 1024) * 1024

    def _rest_bytes(self, tile: HopperTile) -> int:
        """Shared memory beside the patches: weights, corners, barriers, alignment."""
        copies = 2 if tile.mode == 2 else 1
        weights = tile.stages * tile.columns * tile.depth * tile.value_bytes * copies
        corners = tile.consumers * 4 * 16 * (tile.columns + 8) * tile.value_bytes
        return weights + corners + _BARRIERS + 1024

    def _patches(self, target: Target, op: ops.Conv2d) -> int:
        """How many patches the ring can hold."""
        tile = self.tile(target, op)
        room = _SHARED_BYTES // tile.blocks - 1024 - self._rest_bytes(tile)
        return min(room // self._patch_bytes(target, op), _MOST_PATCHES)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile = self.tile(gpu.target, op)
        _, height, width = op.src.shape.sides
        patches, size = self._patches(gpu.target, op), self._patch_bytes(gpu.target, op)
        tiles_q = -(-height * (width + 2) // tile.rows)
        tiles = gpu.rows(op.src) * tiles_q * hopper.across(op, tile)
        lines = Lines(
            *(gpu.rows(op.src), height, width, tiles_q, tiles),
            *(patches, size, self._patch_rows(op)),
        )
        patch = launch.patch_map(
            hopper.source(gpu, op, tile), lines=self._lines(op), channels=tile.depth
        )
        gpu.tile(tile, patches * size + self._rest_bytes(tile)).launch(
            (min(tiles, gpu.target.multiprocessors * tile.blocks), 1, 1),
            tile.threads,
            [patch, hopper.weights(gpu, op, tile), hopper.problem(gpu, op, tile), lines],
            stream=gpu.stream.handle,
            early=True,
        )

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly, on the same scale as hopper.Hopper.estimate."""
        tile = self.tile(target, op)
        _, height, width = op.src.shape.sides
        rate = {0: 1700, 1: 850, 2: 315}[tile.mode]
        steps = 9 * -(-op.src.shape.channels // tile.depth)
        cycles = max(tile.rows * tile.columns * tile.depth / rate, 300)
        tiles_q = -(-height * (width + 2) // tile.rows)
        tiles = target.rows(op.src) * tiles_q * hopper.across(op, tile)
        rounds = -(-tiles // (target.multiprocessors * tile.blocks)) * tile.blocks
        return 5000 + rounds * (steps * cycles + tile.rows * tile.columns / 12)


VARIANTS = {each.name: each for each in map(Patch, _TILES)}
