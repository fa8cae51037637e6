"""Convolution of few channels with mma.sync: the first layer of a network, bound by its output.

Windows are read in pieces of 8 bytes where pixels are aligned to that, else value by value, so the
channels need no alignment; see kernels/conv/mma.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from engine.arrays import Array
from engine.backends.cuda.conv import kernel_args, tensor_cores
from engine.backends.cuda.conv.algorithm import Algorithm, ScaledConv2d
from engine.backends.cuda.conv.kernel_args import Divisor, struct
from engine.backends.cuda.conv.tensor_cores import COMMON
from engine.backends.cuda.driver import tiles
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.target import BLOCK_RESERVED, COLOURS, most_shared_bytes
from engine.plan import ops

_COLUMNS = (16, 32, 64, 96)
_MOST_DEPTH = 192  # values of a window
_MOST_GATHERS = 2  # of each window; if there were more, another kernel is faster
_WARPS = 4
_PIECE_BYTES = 8  # channels of one tap, loaded at once
_PIECES_OF_STEP = 4  # a step is the k of one mma
_WORDS = 2  # per piece
_RATES = (300, 150, 50, 150)  # multiply-adds per cycle, by mode
# Blocks on an SM that registers suffice for, by bytes of a value and columns.
_MOST_RESIDENT = {2: {16: 5, 32: 5, 64: 4, 96: 4}, 4: {16: 4, 32: 4, 64: 3, 96: 2}}


Args = struct("few_channels.cu", "KernelArgs", Output=kernel_args.Output)


@dataclass(frozen=True)
class FewChannelsTile(Tile):
    """A tile in which a warp computes `columns` filters for a run of pixels at a time."""

    channels: Annotated[int, "CHANNELS"]
    kernel_y: Annotated[int, "TAPS_Y"]
    kernel_x: Annotated[int, "TAPS_X"]
    columns: Annotated[int, "BN"]
    most_shared: int  # bytes that the blocks of an SM share
    mode: int
    out_bytes: Annotated[int, "OUT_BYTES"]
    pool_area: Annotated[int, "POOLED"] = 1
    is_wide: Annotated[bool, "IS_WIDE"] = True  # pixels are aligned to 8 bytes
    is_scaled: Annotated[bool, "IS_SCALED"] = False
    has_residual: Annotated[bool, "HAS_RESIDUAL"] = False
    kinds: Annotated[tuple[int, int], "KIND", "LAST"] = (0, 0)
    yolo: Annotated[int, "YOLO"] = 0  # kernel_args.yolo_mode
    kernel: str = "few_channels"

    @property
    def piece(self) -> int:
        """The values of a piece: channels of one tap."""
        return _PIECE_BYTES // self.value_bytes

    @property
    def pieces(self) -> int:
        """The pieces of a window."""
        return self.kernel_y * self.kernel_x * -(-self.channels // self.piece)

    @property
    def steps(self) -> int:
        return -(-self.pieces // _PIECES_OF_STEP)

    @property
    def chunk(self) -> int:
        """The channels of a pixel that a lane stores at once."""
        values, most = self.columns // 8, 16 // self.out_bytes
        return most if values % most == 0 else 4 if values % 4 == 0 else values

    @property
    def run(self) -> int:
        """The pixels that a warp computes at once."""
        return 16 if self.pool_area > 1 or self.columns > 32 else 32

    @property
    def defines(self) -> Mapping[str, int]:
        return {**super().defines, "WARPS": _WARPS, "BLOCKS": self.blocks}

    @property
    def threads(self) -> int:
        return 32 * _WARPS

    @property
    def shared_bytes(self) -> int:
        line = self.steps * _PIECES_OF_STEP * _PIECE_BYTES + 16
        return self.columns * tensor_cores.parts(self.mode) * line

    @property
    def blocks(self) -> int:
        """The blocks resident on one SM."""
        resident = _MOST_RESIDENT[self.value_bytes][self.columns] - int(self.is_scaled)
        return max(1, min(self.most_shared // (self.shared_bytes + BLOCK_RESERVED), resident))


@dataclass(frozen=True)
class FewChannels(Algorithm):
    """A block computes `columns` filters."""

    family = "few_channels"
    pool = yolo = scale = reads_float = writes_float = exact = writes_int8 = True
    priority = 7

    columns: int

    @property
    def name(self) -> str:
        return f"few_channels_{self.columns}"

    def tile(self, target: Target, op: ops.Conv2d) -> FewChannelsTile:
        """Return the likely tile: whether pixels are aligned is known when it is enqueued."""
        channels = op.weight.shape[1]
        tile = FewChannelsTile(
            channels=channels,
            kernel_y=op.kernel[0],
            kernel_x=op.kernel[1],
            columns=self.columns,
            most_shared=most_shared_bytes(target.capability),
            has_residual=op.residual is not None,
            kinds=kernel_args.kinds(op),
            **tensor_cores.tile_fields(target, op),
        )
        return replace(tile, is_wide=channels == COLOURS or channels % tile.piece == 0)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        if not tensor_cores.has_tensor_cores(target, op) or op.signed or op.groups > 1:
            return False
        if not {op.activation, op.last_activation} <= COMMON or kernel_args.depth(op) > _MOST_DEPTH:
            return False
        if self.columns > _COLUMNS[0] and self.columns >= 2 * op.out.shape.channels:
            return False
        if self.columns == _COLUMNS[-1] and op.pool is not None:  # more sums than registers
            return False
        if isinstance(op, ScaledConv2d) and {op.src, op.factor} & target.misaligned:
            return False
        tile = self.tile(target, op)
        return tile.shared_bytes <= tile.most_shared

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return weights and biases, padded with zeros to whole blocks."""
        lines = self._blocks_n(op) * self.columns
        weight = constants["weight"].transpose(0, 2, 3, 1)
        return {
            "weight": _permuted(weight, self.tile(target, op), lines),
            "bias": kernel_args.biases(op, constants, groups=1, lines=lines),
        }

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile, blocks_n = self.tile(gpu.target, op), self._blocks_n(op)
        is_wide = gpu[op.src] % _PIECE_BYTES == 0 and gpu.pitch(op.src) % tile.piece == 0
        tile = replace(tile, is_wide=is_wide)
        known = gpu.arguments(op)
        arguments = Args.of(
            known,
            output=kernel_args.output(gpu, op, known, filters=op.out.shape.channels),
            lines=blocks_n * self.columns,
            by_out_h=Divisor.by(op.out.shape.height),
            by_out_w=Divisor.by(op.out.shape.width),
        )
        runs = -(-gpu.pixels(op.out) // (tile.run * _WARPS))
        resident = -(-gpu.target.multiprocessors * tile.blocks // blocks_n)
        tensor_cores.launch(gpu, tile, min(runs, resident) * blocks_n, arguments)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Return cycles, on the scale of implicit_gemm.py."""
        tile = self.tile(target, op)
        windows = tile.run * tile.pool_area
        runs = -(-target.rows(op.out) * op.out.shape.area // tile.run)
        depth = tile.steps * _PIECES_OF_STEP * tile.piece
        gathering = windows * tile.steps / 4
        products = windows * self.columns * depth / _RATES[tile.mode]
        finishing = tile.run * self.columns / 8
        each = gathering + products + finishing
        return 4000 + runs / target.multiprocessors * self._blocks_n(op) * each

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        """Prefer the variant that gathers windows least often, then the narrowest."""
        if op.out.shape.channels > _MOST_GATHERS * _COLUMNS[-1]:
            return None
        return self._blocks_n(op) + self.columns / 1024

    def _blocks_n(self, op: ops.Conv2d) -> int:
        """Return the blocks for all filters."""
        return -(-op.out.shape.channels // self.columns)


def _permuted(weight: Array, tile: FewChannelsTile, lines: int) -> NDArray[np.generic]:
    """Return weights (filters, tap_y, tap_x, channels) in the order in which lanes read them.

    Lane n of a row reads piece n of each step: the first words of all pieces, then the second. If
    the last step has space, it holds both parts of its weights.
    """
    channels = -tile.channels % tile.piece
    weight = np.pad(weight, ((0, lines - len(weight)), (0, 0), (0, 0), (0, channels)))
    pieces = np.ascontiguousarray(weight, np.float32).reshape(lines, tile.pieces, tile.piece)
    space = tile.steps * _PIECES_OF_STEP
    parts = tensor_cores.factors(
        np.pad(pieces, ((0, 0), (0, space - tile.pieces), (0, 0))), tile.mode
    )
    rest = tile.pieces % _PIECES_OF_STEP
    if tile.mode == tiles.EXACT_HALVES and 2 * rest <= _PIECES_OF_STEP:
        high, low = np.split(parts, 2)
        high[:, tile.pieces : tile.pieces + rest] = low[:, tile.pieces - rest : tile.pieces]
    steps = (len(parts), tile.steps, _PIECES_OF_STEP, _WORDS, tile.piece // _WORDS)
    by_word = parts.reshape(steps).transpose(0, 1, 3, 2, 4)
    by_block = by_word.reshape(-1, tile.columns, space * tile.piece)
    # Each lane gets adjacent filters, two of every sixteen.
    filters = np.arange(tile.columns).reshape(-1, 8, tile.chunk)  # chunks of each of 8 lanes
    of_lane = filters.transpose(1, 0, 2).reshape(8, tile.columns // 16, 2)
    return np.ascontiguousarray(by_block[:, of_lane.transpose(1, 2, 0).ravel()])


ALGORITHMS = tuple(map(FewChannels, _COLUMNS))
