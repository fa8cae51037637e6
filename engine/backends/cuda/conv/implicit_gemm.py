"""Implicit GEMM on the matrix units of any card from Turing on, in every precision.

float32 runs as three products of tf32 halves of each factor, whose error is below that of Sgemm.
Groups too narrow for the units are bundled: several become one, with zeros between them.
Many tiles compute the same; which is fastest depends on the layer, so each is an algorithm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import epilogue, geometry, tensor_cores
from engine.backends.cuda.conv.tensor_cores import COMMON, HOPPER
from engine.backends.cuda.driver import tiles
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops

TURING, AMPERE = (7, 5), (8, 0)
# rows, columns, rows and columns of a warp, stages, blocks on a multiprocessor
_TILES = (
    (128, 128, 64, 32, 3, 1),
    (128, 64, 64, 32, 3, 2),
    (64, 64, 32, 32, 4, 3),
    (64, 32, 32, 16, 6, 3),
)
_SPLIT_FLOAT_TILES = (
    (64, 64, 32, 32, 3, 2),
    (64, 32, 32, 16, 4, 2),
    (128, 32, 32, 32, 3, 2),
    (32, 64, 16, 32, 3, 3),
)
SPLITS = (1, 2, 4, 8)
_MOST_BLOCKS = 512  # more tiles than this fill the device without a split
_LEAST_STEPS = 4  # slices that each block of a split sums at least
_LEAST_FILTERS = 32  # of a bundle of groups, where there are so many
_SHORT_DEPTH = 512  # bytes of k from which on half a row more matters little

# Half products of a multiprocessor in a cycle, as far as mma.sync reaches.
_RATES = {TURING: 400, AMPERE: 800, (8, 6): 240, (8, 9): 240, HOPPER: 550}
# Cards on which three tf32 products are faster than one of floats.
_FAST_TF32 = (AMPERE, HOPPER)


class Problem(ctypes.Structure):
    """The struct of the same name in kernels/conv/mma/implicit_gemm.cu."""

    _fields_ = (
        ("output", epilogue.Output),
        *((name, ctypes.c_void_p) for name in ("input", "weight", "factor", "parts", "arrivals")),
        *(
            (name, ctypes.c_int)
            for name in (
                *("height", "width", "pitch", "out_h", "out_w"),
                *("groups", "channels", "filters", "taps_y", "taps_x", "steps"),
                *("stride_y", "stride_x", "top", "left", "dilation_y", "dilation_x"),
                *("next_y", "next_x", "next_channel", "split", "tiles_n", "area", "factor_pitch"),
            )
        ),
    )


@dataclass(frozen=True)
class MmaTile:
    """rows x columns of the output for a block; slices of `depth` values along k."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    depth: int
    stages: int
    blocks: int  # resident on one multiprocessor
    mode: int
    out_bytes: int
    cells: int = 1
    yolo: int = 0  # geometry.yolo
    is_scaled: bool = False
    kernel: str = "implicit_gemm"

    @property
    def defines(self) -> Mapping[str, int]:
        return {
            "BM": self.rows,
            "BN": self.columns,
            "WM": self.warp_rows,
            "WN": self.warp_columns,
            "BK": self.depth,
            "STAGES": self.stages,
            "BLOCKS": self.blocks,
            "OUT_BYTES": self.out_bytes,
            "CELLS": self.cells,
            "YOLO": self.yolo,
            "IS_SCALED": int(self.is_scaled),
        }

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def warps(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def stage_bytes(self) -> int:
        weights = self.columns * tensor_cores.parts(self.mode)
        value_bytes = 2 if tiles.reads_halves(self.mode) else 4
        return (self.rows + weights) * self.depth * value_bytes

    @property
    def shared_bytes(self) -> int:
        """The ring, or the corners of all warps that take its place."""
        corner = self.warp_rows * (self.warp_columns + epilogue.CORNER_PADDING) * 4
        return max(self.stages * self.stage_bytes, self.warps * corner)


@dataclass(frozen=True)
class Bundles:
    """Groups of a convolution, `size` of them made into one."""

    size: int
    count: int
    channels: int  # of a bundle
    filters: int


def bundles(target: Target, op: ops.Conv2d) -> Bundles | None:
    """The smallest bundles that 16-byte copies and a tile can take; None where there are none."""
    channels, filters = op.weight.shape[1], op.weight.shape[0] // op.groups
    sizes = [
        size
        for size in range(1, op.groups + 1)
        if op.groups % size == 0 and size * channels * target.bytes_of(op.src) % 16 == 0
    ]
    if not sizes:
        return None
    size = next((each for each in sizes if each * filters >= _LEAST_FILTERS), sizes[-1])
    return Bundles(size, op.groups // size, size * channels, size * filters)


def can_run(target: Target, op: ops.Conv2d) -> bool:
    """Whether the units know the precision, and windows can be copied 16 bytes at a time."""
    oldest = TURING if target.bytes_of(op.src) == 2 else AMPERE
    if target.capability < oldest or op.signed or op.is_depthwise:
        return False
    if not {op.activation, op.last_activation} <= COMMON or op.src in target.misaligned:
        return False
    if isinstance(op, ScaledConv2d) and op.factor in target.misaligned:
        return False
    return bundles(target, op) is not None


@dataclass(frozen=True)
class ImplicitGemm:
    """One tile shape, with the sum over k shared by `split` blocks."""

    sides: tuple[int, int, int, int, int, int]
    split: int

    @property
    def name(self) -> str:
        rows, columns, _, _, stages, _ = self.sides
        return f"implicit_gemm_{rows}x{columns}x{stages}_split{self.split}"

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        mode = tensor_cores.mode_of(target, op)
        if self.sides not in (_SPLIT_FLOAT_TILES if mode == 2 else _TILES):
            return False
        if not can_run(target, op):
            return False
        if self.tile(target, op).shared_bytes > tensor_cores.most_shared_bytes(target.capability):
            return False
        columns = self.sides[1]
        if columns > 32 and columns >= 2 * self._bundles(target, op).filters:
            return False
        if self.split == 1:
            return True
        blocks = self._tiles(target, op) * self.split
        return blocks <= _MOST_BLOCKS and self._steps(target, op) >= _LEAST_STEPS * self.split

    def tile(self, target: Target, op: ops.Conv2d) -> MmaTile:
        rows, columns, warp_rows, warp_columns, stages, blocks = self.sides
        if target.capability < AMPERE:
            stages = 2  # without copies that arrive by themselves there is nothing to wait for
        return MmaTile(
            *(rows, columns, warp_rows, warp_columns, self._depth(target, op)),
            *(stages, blocks, tensor_cores.mode_of(target, op), target.bytes_of(op.out)),
            *(geometry.cells(op), geometry.yolo(op), isinstance(op, ScaledConv2d)),
        )

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        if self.split == 1:
            return 0
        rows, columns = self.sides[:2]
        return self._tiles(target, op) * self.split * rows * columns * 4

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Weights as (bundles, lines, k), k = (tap, channel); zeros fill tiles and slices."""
        each = self._bundles(target, op)
        lines = self._across(target, op) * self.sides[1]
        dense = _bundled(constants["weight"], each)
        depth = self._steps(target, op) * self._depth(target, op)
        missing = ((0, 0), (0, lines - each.filters), (0, depth - dense.shape[2]))
        padded = np.pad(dense, missing) if np.any(missing) else dense
        made = {
            "weight": tensor_cores.factors(padded, tensor_cores.mode_of(target, op)),
            "bias": epilogue.biases(op, constants, groups=each.count, lines=lines),
        }
        if self.split > 1:
            made["arrivals"] = np.zeros(self._tiles(target, op), np.int32)
        return made

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        target, tile, each = gpu.target, self.tile(gpu.target, op), self._bundles(gpu.target, op)
        across = self._across(target, op)
        factor = op.factor if isinstance(op, ScaledConv2d) else None
        taps, next_channel = divmod(tile.depth, each.channels)
        top, left, _, _ = op.padding
        problem = Problem(
            epilogue.output(gpu, op, filters=each.filters),
            *(gpu[op.src], gpu.array(op, "weight"), gpu[factor] if factor else 0),
            *(gpu.workspace, gpu.array(op, "arrivals")),
            *(op.src.shape.height, op.src.shape.width, gpu.pitch(op.src)),
            *(op.out.shape.height, op.out.shape.width),
            *(each.count, each.channels, each.filters, *op.kernel, self._steps(target, op)),
            *(*op.stride, top, left, *op.dilation),
            *(*divmod(taps, op.kernel[1]), next_channel, self.split, across),
            *(op.src.shape.area, gpu.pitch(factor) if factor else 0),
        )
        tiles = -(-gpu.pixels(op.out) * tile.cells // tile.rows) * across * each.count
        gpu.tile(tile, tile.shared_bytes).launch(
            (tiles * self.split, 1, 1),
            tile.threads,
            [problem],
            stream=gpu.stream.handle,
            early=target.capability >= HOPPER,
        )

    def _bundles(self, target: Target, op: ops.Conv2d) -> Bundles:
        found = bundles(target, op)
        assert found is not None
        return found

    def _depth(self, target: Target, op: ops.Conv2d) -> int:
        """Values of a slice: a row of 128 bytes, or of 64 where that leaves much less empty."""
        length = self._values_of_k(target, op) * target.bytes_of(op.src)
        is_short = length <= _SHORT_DEPTH and 0 < length % 128 <= 64
        return (64 if is_short else 128) // target.bytes_of(op.src)

    def _values_of_k(self, target: Target, op: ops.Conv2d) -> int:
        return op.kernel[0] * op.kernel[1] * self._bundles(target, op).channels

    def _steps(self, target: Target, op: ops.Conv2d) -> int:
        return -(-self._values_of_k(target, op) // self._depth(target, op))

    def _across(self, target: Target, op: ops.Conv2d) -> int:
        """Tiles side by side over the filters of a bundle."""
        return -(-self._bundles(target, op).filters // self.sides[1])

    def _tiles(self, target: Target, op: ops.Conv2d) -> int:
        pixels = target.rows(op.out) * op.out.shape.area * geometry.cells(op)
        down = -(-pixels // self.sides[0])
        return down * self._across(target, op) * self._bundles(target, op).count

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, roughly: what ranks the tiles before any was measured."""
        tile = self.tile(target, op)
        half_rate = _RATES.get(target.capability, _RATES[AMPERE])
        rate = half_rate / (1, 2, 6, 2)[tile.mode]
        most = -(-self._tiles(target, op) * self.split // target.multiprocessors)
        room = tensor_cores.most_shared_bytes(target.capability) // (tile.shared_bytes + 1024)
        resident = max(1, min(tile.blocks, room))
        at_once = min(most, resident)
        products = at_once * tile.rows * tile.columns * tile.depth / rate
        cycles = max(products, at_once * tile.stage_bytes / 45, 450)
        block = 4000 + self._steps(target, op) / self.split * cycles
        block += at_once * tile.rows * tile.columns / 8
        if self.split > 1:
            block += 1500 + tile.rows * tile.columns * self.split / 8
        return -(-most // resident) * block


def _bundled(weight: Array, each: Bundles) -> Array:
    """(filters, channels, y, x) as (bundles, filters, k), with zeros between groups."""
    _, channels, taps_y, taps_x = weight.shape
    filters = each.filters // each.size
    groups = weight.reshape(each.count, each.size, filters, channels, taps_y, taps_x)
    dense = np.zeros(
        (each.count, each.size, filters, taps_y, taps_x, each.size, channels), np.float32
    )
    for group in range(each.size):
        dense[:, group, ..., group, :] = groups[:, group].transpose(0, 1, 3, 4, 2)
    return dense.reshape(each.count, each.filters, -1)


VARIANTS = {
    each.name: each
    for each in (
        ImplicitGemm(sides, split)
        for sides, split in product(dict.fromkeys((*_TILES, *_SPLIT_FLOAT_TILES)), SPLITS)
    )
}


def best(target: Target, op: ops.Conv2d) -> str | None:
    """The variant that should be fastest; None where none can run or floats alone are faster."""
    if target.precision == "float32" and target.capability not in _FAST_TF32:
        return None
    able = [each for each in VARIANTS.values() if each.supports(target, op)]
    return min(able, key=lambda each: each.estimate(target, op)).name if able else None
