"""The first layer of a network on Hopper: the overlapping rows of a picture are read in place.

Two pixels of a picture are 16 bytes, the distance between rows of a wgmma operand. Where windows
are one pixel apart, two of them form a row, with the filters of the second as further columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from engine.backends.cuda.conv import kernel_args, tensor_cores
from engine.backends.cuda.conv.algorithm import Algorithm, ScaledConv2d
from engine.backends.cuda.conv.kernel_args import Divisor, struct
from engine.backends.cuda.conv.sm90_base import SM_SHARED
from engine.backends.cuda.conv.tensor_cores import COMMON, EIGHT, HOPPER
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.target import BLOCK_RESERVED, COLOUR_PITCH, COLOURS, most_shared_bytes
from engine.plan import ops

_ROW_PIXELS = 2  # from one row of the wgmma operand to the next
_WINDOWS = 64  # rows of the operand
_STEP_PIXELS = 4  # pixels of a line that one wgmma multiplies
_MOST_STEPS = 2
_LINES = (8, 4, 2)  # lines of windows per block
_OCCUPIED = 0.75  # of the multiprocessors
_GROUPS = 2  # warpgroups
_GATHERED = 32  # columns that adjacent lanes store together
_MOST_COLUMNS = 128
_MOST_BLOCKS = {True: 2, False: 3}  # per SM, by whether a warpgroup holds the sums of two lines
_PIECE_BYTES = 8


Args = struct("sm90_rgb_stem.cu", "KernelArgs")


@dataclass(frozen=True)
class RgbStemTile(Tile):
    """A tile of lines of windows by all filters."""

    filters: int
    lines: Annotated[int, "LINES"]
    taps: tuple[int, int]
    stride: tuple[int, int]
    parts: Annotated[int, "PARTS"]  # per weight: two if it is the sum of two halves
    pool_area: Annotated[int, "POOLED"]
    kind: Annotated[int, "KIND"]
    out_bytes: Annotated[int, "OUT_BYTES"]
    mode: int = 0
    kernel: str = "sm90_rgb_stem"

    @property
    def pair(self) -> int:
        """The windows that share a row of the operand."""
        return _ROW_PIXELS // self.stride[1]

    @property
    def columns(self) -> int:
        return self.filters * self.pair

    @property
    def steps(self) -> int:
        """The steps of k for one line of a window."""
        pixels = self.taps[1] + (self.pair - 1) * self.stride[1]
        return -(-pixels // _STEP_PIXELS)

    @property
    def weight_bytes(self) -> int:
        return self.taps[0] * self.steps * self.parts * self.columns * 32

    @property
    def threads(self) -> int:
        return 128 * _GROUPS

    @property
    def shared_bytes(self) -> int:
        pixels = _ROW_PIXELS * (_WINDOWS - 1) + _STEP_PIXELS * self.steps
        lines = (self.lines - 1) * self.stride[0] + self.taps[0]
        return self.weight_bytes + lines * -(-pixels * 8 // 16) * 16 + 4 * self.columns + 16

    @property
    def blocks(self) -> int:
        """The blocks resident on one SM."""
        most = SM_SHARED // (self.shared_bytes + BLOCK_RESERVED)
        return max(1, min(most, _MOST_BLOCKS[self.pool_area > 1 or self.columns > 64]))

    @property
    def defines(self) -> Mapping[str, int]:
        sides = {"TAPS_Y": self.taps[0], "STRIDE_Y": self.stride[0]}
        own = {"BN": self.columns, "PAIR": self.pair, "STEPS": self.steps, "BLOCKS": self.blocks}
        return {**super().defines, **sides, **own}

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.columns, self.mode)}


class RgbStem(Algorithm):
    name = "sm90_rgb_stem"
    pool = exact = writes_int8 = True

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        return None

    def tile(self, target: Target, op: ops.Conv2d) -> RgbStemTile:
        """Return the largest tile whose blocks occupy most of the card, or else the smallest."""
        kind, _ = kernel_args.kinds(op)
        tile = RgbStemTile(
            filters=op.weight.shape[0],
            lines=_LINES[0],
            taps=op.kernel,
            stride=op.stride,
            parts=tensor_cores.parts(tensor_cores.mode_of(target, op)),
            pool_area=kernel_args.pool_area(op),
            kind=kind,
            out_bytes=target.bytes_of(op.out),
        )
        for lines in _LINES:
            tile = replace(tile, lines=lines)
            across, down = _blocks_of_row(tile, op)
            if target.rows(op.out) * across * down >= _OCCUPIED * target.multiprocessors:
                break
        return tile

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if target.capability != HOPPER or target.bytes_of(op.src) != 2:
            return False
        if target.bytes_of(op.out) > 2:
            return False
        if op.src.shape.channels != COLOURS or op.groups > 1 or op.signed:
            return False
        if op.stride[1] not in (1, _ROW_PIXELS) or op.dilation != (1, 1):
            return False
        pooled = all(isinstance(step, ops.Activate | ops.MaxPool) for step in op.tail)
        if isinstance(op, ScaledConv2d) or not pooled or op.last_activation != "linear":
            return False
        if op.activation not in COMMON or op.out in target.misaligned:
            return False
        tile = self.tile(target, op)
        stored = tile.filters if tile.pool_area > 1 else tile.columns
        if tile.filters % EIGHT or stored % _GATHERED or tile.columns > _MOST_COLUMNS:
            return False
        most = most_shared_bytes(target.capability)
        return tile.steps <= _MOST_STEPS and tile.shared_bytes <= most

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return weights step by step, in groups of eight columns, and a bias for each column."""
        tile = self.tile(target, op)
        filters, taps_y, taps_x = tile.filters, *tile.taps
        lines = np.zeros(
            (taps_y, tile.steps * _STEP_PIXELS, COLOUR_PITCH, tile.columns), np.float32
        )
        weight = constants["weight"].transpose(2, 3, 1, 0)
        for window in range(tile.pair):
            columns = slice(window * filters, (window + 1) * filters)
            lines[:, window : window + taps_x, :COLOURS, columns] = weight
        eights = (EIGHT, tile.columns // EIGHT, EIGHT)
        halves = tensor_cores.factors(lines, tensor_cores.mode_of(target, op))
        halves = halves.reshape(tile.parts, taps_y, tile.steps, 2, *eights)
        bias = constants.get("bias", np.zeros(filters, np.float32))
        return {
            "weight": np.ascontiguousarray(halves.transpose(1, 2, 0, 3, 5, 6, 4)),
            "bias": np.tile(bias, tile.pair),
        }

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile, grid = self.tile(gpu.target, op), op.grid
        across, down = _blocks_of_row(tile, op)
        blocks = gpu.rows(op.out) * across * down
        is_wide = gpu[op.src] % _PIECE_BYTES == 0 and gpu.pitch(op.src) % COLOUR_PITCH == 0
        arguments = Args.of(
            gpu.arguments(op),
            is_wide=int(is_wide),
            grid_h=grid.height,
            grid_w=grid.width,
            across=across,
            blocks=blocks,
            by_across=Divisor.by(across),
            by_down=Divisor.by(down),
        )
        resident = gpu.target.multiprocessors * tile.blocks
        tensor_cores.launch(gpu, tile, min(blocks, resident), arguments)


def _blocks_of_row(tile: RgbStemTile, op: ops.Conv2d) -> tuple[int, int]:
    """Return how many blocks lie next to each other, and one below the other."""
    rows_of_product = -(-op.grid.width // tile.pair)
    return -(-rows_of_product // _WINDOWS), -(-op.grid.height // tile.lines)


RGB_STEM = RgbStem()
ALGORITHMS = (RGB_STEM,)
