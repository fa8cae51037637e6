"""Convolution of few channels on the matrix units: a network's first layer, bound by its output.

Each lane gathers a window value by value, so channels need no alignment; see kernels/tensor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.backends.cuda import tensor
from engine.backends.cuda.conv import finish, geometry
from engine.backends.cuda.conv.implicit_gemm import AMPERE, TURING
from engine.backends.cuda.gpu import Arrays, Gpu, Target
from engine.backends.cuda.tensor import COMMON, HOPPER
from engine.plan import ops

COLUMNS = (16, 32, 64)
_MOST_DEPTH = 192  # values of a window
_MOST_GATHERS = 2  # of a window, before a wider kernel is better
_WARPS = 4
_WINDOWS = 32  # of a warp
_STEP_BYTES = 32
_RATES = (300, 150, 50, 150)  # products in a cycle, by mode
_MOST_RESIDENT = {16: 6, 32: 5, 64: 4}  # blocks on a multiprocessor, for registers


class Problem(ctypes.Structure):
    """The struct of the same name in kernels/tensor/thin_conv.cu."""

    _fields_ = (
        ("output", finish.Output),
        *((name, ctypes.c_void_p) for name in ("input", "weight")),
        *(
            (name, ctypes.c_int)
            for name in (
                *("height", "width", "pitch", "out_h", "out_w", "filters", "lines"),
                *("stride_y", "stride_x", "top", "left", "dilation_y", "dilation_x"),
            )
        ),
    )


@dataclass(frozen=True)
class ThinTile:
    """Warps that each take 32 windows at a time to `columns` filters."""

    channels: int
    kernel_y: int
    kernel_x: int
    columns: int
    most_shared: int  # bytes that blocks on a multiprocessor have
    mode: int
    out_bytes: int
    cells: int = 1
    is_yolo: bool = False
    kernel: str = "thin_conv"

    @property
    def value_bytes(self) -> int:
        return 2 if tensor.reads_halves(self.mode) else 4

    @property
    def depth(self) -> int:
        """Values of a window and the zeros behind them: whole steps."""
        step = _STEP_BYTES // self.value_bytes
        return -(-self.channels * self.kernel_y * self.kernel_x // step) * step

    @property
    def defines(self) -> Mapping[str, int]:
        return {
            "CHANNELS": self.channels,
            "TAPS_Y": self.kernel_y,
            "TAPS_X": self.kernel_x,
            "DEPTH": self.depth,
            "BN": self.columns,
            "WARPS": _WARPS,
            "BLOCKS": self.blocks,
            "OUT_BYTES": self.out_bytes,
            "CELLS": self.cells,
            "IS_YOLO": int(self.is_yolo),
        }

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def threads(self) -> int:
        return 32 * _WARPS

    @property
    def shared_bytes(self) -> int:
        """Weights, and for every warp its windows and the corner of its sums."""
        line = self.depth * self.value_bytes + 16
        weights = self.columns * tensor.parts(self.mode) * line
        corner = 16 * (self.columns + finish.CORNER_PADDING) * 4
        return weights + _WARPS * (_WINDOWS * line + corner)

    @property
    def blocks(self) -> int:
        """Resident on one multiprocessor."""
        return max(
            1, min(self.most_shared // (self.shared_bytes + 1024), _MOST_RESIDENT[self.columns])
        )


@dataclass(frozen=True)
class Thin:
    """One number of filters for a block."""

    columns: int

    @property
    def name(self) -> str:
        return f"thin_{self.columns}"

    def tile(self, target: Target, op: ops.Conv2d) -> ThinTile:
        most = tensor.most_shared_bytes(target.capability)
        modes = tensor.mode_of(target, op), target.bytes_of(op.out)
        tail = geometry.cells(op), op.yolo is not None
        return ThinTile(op.weight.shape[1], *op.kernel, self.columns, most, *modes, *tail)

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        oldest = TURING if target.bytes_of(op.src) == 2 else AMPERE
        if target.capability < oldest or op.signed or op.groups > 1:
            return False
        if not {op.activation, op.last_activation} <= COMMON or geometry.depth(op) > _MOST_DEPTH:
            return False
        if self.columns > COLUMNS[0] and self.columns >= 2 * op.out.shape.channels:
            return False
        tile = self.tile(target, op)
        return tile.shared_bytes <= tile.most_shared

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return 0

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Weights as (lines, k), k = (tap, channel), zeros up to whole blocks and steps."""
        tile = self.tile(target, op)
        weight = constants["weight"].transpose(0, 2, 3, 1)
        dense = np.ascontiguousarray(weight, dtype=np.float32).reshape(len(weight), -1)
        lines = self._lines(op)
        missing = ((0, lines - len(dense)), (0, tile.depth - dense.shape[1]))
        return {
            "weight": tensor.factors(np.pad(dense, missing), tile.mode),
            "bias": finish.biases(op, constants, groups=1, lines=lines),
        }

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile, filters, lines = self.tile(gpu.target, op), op.out.shape.channels, self._lines(op)
        top, left, _, _ = op.padding
        problem = Problem(
            finish.output(gpu, op, filters=filters),
            *(gpu[op.src], gpu.array(op, "weight")),
            *(op.src.shape.height, op.src.shape.width, gpu.pitch(op.src)),
            *(op.out.shape.height, op.out.shape.width, filters, lines),
            *(*op.stride, top, left, *op.dilation),
        )
        across = lines // self.columns
        needed = -(-gpu.pixels(op.out) * tile.cells // (_WINDOWS * _WARPS))
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
        runs = -(-target.rows(op.out) * op.out.shape.area * tile.cells // _WINDOWS)
        gathering = 4 * geometry.depth(op)
        products = _WINDOWS * self.columns * tile.depth / _RATES[tile.mode]
        finishing = _WINDOWS / tile.cells * self.columns / 8
        each = gathering + products + finishing
        return 4000 + runs / target.multiprocessors * (self._lines(op) // self.columns) * each

    def _lines(self, op: ops.Conv2d) -> int:
        return -(-op.out.shape.channels // self.columns) * self.columns


VARIANTS = {each.name: each for each in map(Thin, COLUMNS)}


def best(target: Target, op: ops.Conv2d) -> str | None:
    """The variant that gathers windows least often; None where none can run, or all too often."""
    filters = op.out.shape.channels
    able = [each for each in VARIANTS.values() if each.supports(target, op)]
    if not able or filters > _MOST_GATHERS * COLUMNS[-1]:
        return None
    return min(able, key=lambda each: (-(-filters // each.columns), each.columns)).name
