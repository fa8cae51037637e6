"""Convolution of few channels on the matrix units: a network's first layer, bound by its output.

Windows are read in pieces of 8 bytes where pixels begin on such, else value by value, so channels
need no alignment; see kernels/conv/mma.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda.conv import epilogue, geometry, tensor_cores
from engine.backends.cuda.conv.divisor import Divisor
from engine.backends.cuda.conv.implicit_gemm import AMPERE, TURING
from engine.backends.cuda.conv.tensor_cores import COMMON, HOPPER
from engine.backends.cuda.driver import tiles
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops

Array = NDArray[np.float32]

COLUMNS = (16, 32, 64, 96)
_MOST_DEPTH = 192  # values of a window
_MOST_GATHERS = 2  # of a window, before a wider kernel is better
_COLOURS = 3  # channels of a picture, whose pixels begin on whole words: see memory.py
_WARPS = 4
_PIECE_BYTES = 8  # of k, of which a step has four
_PIECES_OF_STEP = 4
_WORDS = 2  # of a piece
_RATES = (300, 150, 50, 150)  # products in a cycle, by mode
# Blocks on a multiprocessor that registers suffice for, by bytes of a value and columns.
_MOST_RESIDENT = {2: {16: 5, 32: 5, 64: 4, 96: 4}, 4: {16: 4, 32: 4, 64: 3, 96: 2}}


class Problem(ctypes.Structure):
    """The struct of the same name in kernels/conv/mma/few_channels.cu."""

    _fields_ = (
        ("output", epilogue.Output),
        *((name, ctypes.c_void_p) for name in ("input", "weight", "factor")),
        *(
            (name, ctypes.c_int)
            for name in (
                *("height", "width", "pitch", "out_h", "out_w", "filters", "lines"),
                *("stride_y", "stride_x", "top", "left", "dilation_y", "dilation_x"),
                "factor_pitch",
            )
        ),
        *((name, Divisor) for name in ("by_out_h", "by_out_w")),
    )


@dataclass(frozen=True)
class ThinTile:
    """Warps that each take a run of pixels at a time to `columns` filters."""

    channels: int
    kernel_y: int
    kernel_x: int
    columns: int
    most_shared: int  # bytes that blocks on a multiprocessor have
    mode: int
    out_bytes: int
    cells: int = 1
    yolo: int = 0  # geometry.yolo
    is_wide: bool = True  # pixels begin on 8 bytes
    is_scaled: bool = False
    has_residual: bool = False
    kinds: tuple[int, int] = (0, 0)  # KIND and LAST
    kernel: str = "few_channels"

    @property
    def value_bytes(self) -> int:
        return 2 if tiles.reads_halves(self.mode) else 4

    @property
    def piece(self) -> int:
        """Values that a lane has of a step of a window: channels of one tap."""
        return _PIECE_BYTES // self.value_bytes

    @property
    def pieces(self) -> int:
        """Of a window."""
        return self.kernel_y * self.kernel_x * -(-self.channels // self.piece)

    @property
    def steps(self) -> int:
        return -(-self.pieces // _PIECES_OF_STEP)

    @property
    def chunk(self) -> int:
        """Channels of a pixel that a lane stores at once."""
        values, most = self.columns // 8, 16 // self.out_bytes
        return most if values % most == 0 else 4 if values % 4 == 0 else values

    @property
    def run(self) -> int:
        """Pixels that a warp finishes at once."""
        return 16 if self.cells > 1 or self.columns > 32 else 32

    @property
    def defines(self) -> Mapping[str, int]:
        return {
            "CHANNELS": self.channels,
            "TAPS_Y": self.kernel_y,
            "TAPS_X": self.kernel_x,
            "BN": self.columns,
            "WARPS": _WARPS,
            "BLOCKS": self.blocks,
            "OUT_BYTES": self.out_bytes,
            "POOLED": self.cells,
            "IS_WIDE": int(self.is_wide),
            "IS_SCALED": int(self.is_scaled),
            "HAS_RESIDUAL": int(self.has_residual),
            "KIND": self.kinds[0],
            "LAST": self.kinds[1],
            "YOLO": self.yolo,
        }

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def threads(self) -> int:
        return 32 * _WARPS

    @property
    def shared_bytes(self) -> int:
        line = self.steps * _PIECES_OF_STEP * _PIECE_BYTES + 16
        return self.columns * tensor_cores.parts(self.mode) * line

    @property
    def blocks(self) -> int:
        """Resident on one multiprocessor."""
        resident = _MOST_RESIDENT[self.value_bytes][self.columns] - int(self.is_scaled)
        return max(1, min(self.most_shared // (self.shared_bytes + 1024), resident))


@dataclass(frozen=True)
class Thin:
    """One number of filters for a block."""

    columns: int

    @property
    def name(self) -> str:
        return f"few_channels_{self.columns}"

    def tile(self, target: Target, op: ops.Conv2d) -> ThinTile:
        """Where pixels begin is known when it is enqueued; this is where they are likely to."""
        most = tensor_cores.most_shared_bytes(target.capability)
        modes = tensor_cores.mode_of(target, op), target.bytes_of(op.out)
        tail = geometry.cells(op), geometry.yolo(op)
        channels = op.weight.shape[1]
        tile = ThinTile(channels, *op.kernel, self.columns, most, *modes, *tail)
        return replace(
            tile,
            is_wide=channels == _COLOURS or channels % tile.piece == 0,
            is_scaled=isinstance(op, ScaledConv2d),
            has_residual=op.residual is not None,
            kinds=geometry.kinds(op),
        )

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        oldest = TURING if target.bytes_of(op.src) == 2 else AMPERE
        if target.capability < oldest or op.signed or op.groups > 1:
            return False
        if not {op.activation, op.last_activation} <= COMMON or geometry.depth(op) > _MOST_DEPTH:
            return False
        if self.columns > COLUMNS[0] and self.columns >= 2 * op.out.shape.channels:
            return False
        if self.columns == COLUMNS[-1] and op.pool is not None:  # more sums than registers
            return False
        if isinstance(op, ScaledConv2d) and {op.src, op.factor} & target.misaligned:
            return False
        tile = self.tile(target, op)
        return tile.shared_bytes <= tile.most_shared

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return 0

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Weights and biases, with zeros up to whole blocks of lines."""
        tile = self.tile(target, op)
        lines = self._lines(op)
        weight = constants["weight"].transpose(0, 2, 3, 1)
        return {
            "weight": _permuted(weight, tile, lines),
            "bias": epilogue.biases(op, constants, groups=1, lines=lines),
        }

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile, filters, lines = self.tile(gpu.target, op), op.out.shape.channels, self._lines(op)
        top, left, _, _ = op.padding
        src, pitch = gpu[op.src], gpu.pitch(op.src)
        factor = op.factor if isinstance(op, ScaledConv2d) else None
        tile = replace(tile, is_wide=src % _PIECE_BYTES == 0 and pitch % tile.piece == 0)
        problem = Problem(
            epilogue.output(gpu, op, filters=filters),
            *(src, gpu.array(op, "weight"), gpu[factor] if factor else 0),
            *(op.src.shape.height, op.src.shape.width, pitch),
            *(op.out.shape.height, op.out.shape.width, filters, lines),
            *(*op.stride, top, left, *op.dilation, gpu.pitch(factor) if factor else 0),
            *map(Divisor.of, (op.out.shape.height, op.out.shape.width)),
        )
        across = lines // self.columns
        needed = -(-gpu.pixels(op.out) // (tile.run * _WARPS))
        down = min(needed, -(-gpu.target.multiprocessors * tile.blocks // across))
        gpu.tile(tile, tile.shared_bytes).launch(
            (down * across, 1, 1),
            tile.threads,
            [problem],
            stream=gpu.stream.handle,
            early=gpu.target.capability >= HOPPER,
        )

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly, on the same scale as implicit_gemm.ImplicitGemm.estimate."""
        tile = self.tile(target, op)
        windows = tile.run * tile.cells
        runs = -(-target.rows(op.out) * op.out.shape.area * tile.cells // windows)
        depth = tile.steps * _PIECES_OF_STEP * tile.piece
        gathering = windows * tile.steps / 4
        products = windows * self.columns * depth / _RATES[tile.mode]
        finishing = tile.run * self.columns / 8
        each = gathering + products + finishing
        return 4000 + runs / target.multiprocessors * (self._lines(op) // self.columns) * each

    def _lines(self, op: ops.Conv2d) -> int:
        return -(-op.out.shape.channels // self.columns) * self.columns


def _permuted(weight: Array, tile: ThinTile, lines: int) -> NDArray[np.generic]:
    """Weights (filters, tap_y, tap_x, channels) in the order in which lanes have them.

    Of a step lane n of a row has piece n: first the first words of all, then the second ones. The
    last step has both parts of its weights where it has room for them.
    """
    channels = -tile.channels % tile.piece
    weight = np.pad(weight, ((0, lines - len(weight)), (0, 0), (0, 0), (0, channels)))
    pieces = np.ascontiguousarray(weight, np.float32).reshape(lines, tile.pieces, tile.piece)
    room = tile.steps * _PIECES_OF_STEP
    parts = tensor_cores.factors(
        np.pad(pieces, ((0, 0), (0, room - tile.pieces), (0, 0))), tile.mode
    )
    rest = tile.pieces % _PIECES_OF_STEP
    if tile.mode == tiles.EXACT_HALVES and 2 * rest <= _PIECES_OF_STEP:
        high, low = np.split(parts, 2)
        high[:, tile.pieces : tile.pieces + rest] = low[:, tile.pieces - rest : tile.pieces]
    steps = (len(parts), tile.steps, _PIECES_OF_STEP, _WORDS, tile.piece // _WORDS)
    by_word = (
        parts.reshape(steps).transpose(0, 1, 3, 2, 4).reshape(-1, tile.columns, room * tile.piece)
    )
    return np.ascontiguousarray(by_word[:, _order(tile)])


def _order(tile: ThinTile) -> NDArray[np.intp]:
    """The channel of each filter of a block: a lane, with two of every sixteen, has neighbours."""
    channels = np.arange(tile.columns).reshape(-1, 8, tile.chunk)  # chunks of each of 8 lanes
    of_lane = channels.transpose(1, 0, 2).reshape(8, tile.columns // 16, 2)
    return of_lane.transpose(1, 2, 0).ravel()


VARIANTS = {each.name: each for each in map(Thin, COLUMNS)}


def best(target: Target, op: ops.Conv2d) -> str | None:
    """The variant that gathers windows least often; None where none can run, or all too often."""
    filters = op.out.shape.channels
    able = [each for each in VARIANTS.values() if each.supports(target, op)]
    if not able or filters > _MOST_GATHERS * COLUMNS[-1]:
        return None
    return min(able, key=lambda each: (-(-filters // each.columns), each.columns)).name
