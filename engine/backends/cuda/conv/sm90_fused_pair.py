"""Tiles, weights and launch of the Hopper kernels that fuse two convolutions.

The map between the two stays in shared memory. The second is 3x3, with filters as rows of its
products, as in sm90_swapped.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from engine.backends.cuda.conv import sm90_base, tensor_cores
from engine.backends.cuda.conv.kernel_args import KernelArgs
from engine.backends.cuda.conv.sm90_base import Sm90Tile
from engine.backends.cuda.driver.launch import TensorMap
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

WIDTH = 8  # pixels of a line of a block
BETWEEN = 32  # channels of the map between
FILTERS = 64  # of the second convolution: rows of its product
TAPS = (3, 3)
_LEAST_FILTERS = 40


@dataclass(frozen=True)
class FusedTile(Sm90Tile):
    """rows are pixels and columns filters of the second convolution, `depth` the input's."""

    teams: int = 1
    stride: int = 1
    first_kind: int = 0
    first_columns: int = BETWEEN  # of the first convolution's product
    first_bytes: int = 0  # of its weights
    team_bytes: int = 0  # of shared memory
    more_defines: tuple[tuple[str, int], ...] = ()

    @property
    def defines(self) -> Mapping[str, int]:
        return {
            **super().defines,
            "BM": self.columns,
            "BN": self.rows,
            "BETWEEN": BETWEEN,
            "TEAMS": self.teams,
            "TAPS_Y": TAPS[0],
            "TAPS_X": TAPS[1],
            "SLICES": 1,
            "STRIDE": self.stride,
            "FIRST_KIND": self.first_kind,
            **dict(self.more_defines),
        }

    @property
    def headers(self) -> Mapping[str, str]:
        widths = self.rows, self.first_columns
        return {"wgmma.cuh": "".join(wgmma.header(each, self.mode) for each in widths)}

    @property
    def threads(self) -> int:
        return 128 * self.teams

    @property
    def shared_bytes(self) -> int:
        """What the teams use, with two barriers each, all weights, and their barrier."""
        weights = prod(TAPS) * self.columns * BETWEEN * self.value_bytes + self.first_bytes
        teams = self.teams * (self.team_bytes + sm90_base.BARRIERS)
        return teams + weights + 8 + sm90_base.ALIGNMENT


def supports(target: Target, first: ops.Conv2d, second: ops.Conv2d) -> bool:
    """Return whether the second convolution and the map between suit these kernels."""
    if not sm90_base.can_run(target, second):
        return False
    if (second.kernel, second.padding, second.dilation) != (TAPS, (1, 1, 1, 1), (1, 1)):
        return False
    if any(each is not None for each in (second.pool, second.yolo, second.upsample)):
        return False
    if first.out.shape != second.src.shape or first.out.shape.channels != BETWEEN:
        return False
    if any(target.bytes_of(each) != 2 for each in (first.out, second.out)):
        return False
    is_whole = sm90_base.epilogue_params(target, second)["is_whole"]
    return is_whole and _LEAST_FILTERS <= second.out.shape.channels <= FILTERS


def prepare(tile: FusedTile, second: ops.Conv2d, constants: Arrays, first: Arrays) -> Arrays:
    """Return the arrays of the second convolution, and those of the first as `first_...`."""
    weight = sm90_base.filters_by_lanes(constants["weight"], tile.columns, blocks=1)
    own = sm90_base.prepare(replace(tile, depth=BETWEEN), second, {**constants, "weight": weight})
    return {**{f"first_{name}": values for name, values in first.items()}, **own}


def enqueue(gpu: Gpu, chain: ops.Chain, tile: FusedTile, *first: KernelArgs | TensorMap) -> None:
    """Enqueue the kernel; `first` are its arguments before those of the second convolution."""
    link, last = chain.links
    blocks = _blocks(gpu, chain, tile)
    own = gpu.for_part(last, chain, link.out, 0)
    arguments = sm90_base.arguments(own, last, tile, blocks=blocks)
    tensor_cores.launch(gpu, tile, blocks, *first, arguments)


def _blocks(gpu: Gpu, chain: ops.Chain, tile: FusedTile) -> int:
    """Return the thread blocks: one for each SM."""
    out = chain.out.shape
    tiles = gpu.rows(chain.out) * -(-out.height * WIDTH // tile.rows) * -(-out.width // WIDTH)
    return min(gpu.target.multiprocessors, tiles)
