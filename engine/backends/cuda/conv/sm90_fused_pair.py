"""What kernels have in common on Hopper that make two convolutions; the map between them stays.

The second is 3 x 3 and has its filters as rows of products, as those of sm90_swapped.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from engine.backends.cuda.conv import sm90_splitk
from engine.backends.cuda.conv.sm90_splitk import Sm90Tile
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

WIDE = 8  # results of a line of a block
BETWEEN = 32  # channels of the map between
FILTERS = 64  # of the second: rows of its product
TAPS = (3, 3)
_LEAST_FILTERS = 40


@dataclass(frozen=True)
class ChainTile(Sm90Tile):
    """rows are the pixels of a block and columns the second's filters; `depth` is of what comes."""

    teams: int = 1
    stride: int = 1
    first_kind: int = 0
    first_columns: int = BETWEEN  # of the first's product
    more: tuple[tuple[str, int], ...] = ()  # defines
    room: int = 0  # of a team in shared memory
    first_bytes: int = 0  # of its weights

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
            **dict(self.more),
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
        """What the teams have, all weights, barriers, and what aligns it."""
        weights = prod(TAPS) * self.columns * BETWEEN * self.value_bytes + self.first_bytes
        return self.teams * (self.room + 2 * 8) + weights + 8 + 1024


def supports(target: Target, first: ops.Conv2d, second: ops.Conv2d) -> bool:
    """Whether the one can be what lies before the last link, and the other that link."""
    if not sm90_splitk.can_run(target, second):
        return False
    if (second.kernel, second.padding, second.dilation) != (TAPS, (1, 1, 1, 1), (1, 1)):
        return False
    if any(each is not None for each in (second.pool, second.yolo, second.upsample)):
        return False
    if first.out.shape != second.src.shape or first.out.shape.channels != BETWEEN:
        return False
    if any(target.bytes_of(each) != 2 for each in (first.out, second.out)):
        return False
    _, _, _, is_whole, _ = sm90_splitk.epilogue_params(target, second)
    return is_whole and _LEAST_FILTERS <= second.out.shape.channels <= FILTERS


def prepare(tile: ChainTile, second: ops.Conv2d, constants: Arrays, first: Arrays) -> Arrays:
    """The last link's arrays, and by names of its own what the first has prepared."""
    weight = sm90_splitk.filters_by_lanes(constants["weight"], tile.columns, blocks=1)
    return {
        **{f"first_{name}": values for name, values in first.items()},
        **sm90_splitk.prepare(
            replace(tile, depth=BETWEEN), second, {**constants, "weight": weight}
        ),
    }


def first_arrays(gpu: Gpu, chain: ops.Chain) -> tuple[int, int]:
    """Pointers to the bias and the weight of the first link."""
    return gpu.array(chain, "first_bias"), gpu.array(chain, "first_weight")


def enqueue(gpu: Gpu, chain: ops.Chain, tile: ChainTile, *first: Any) -> None:
    """Launch the tile; before what the last link is told come the arguments for the `first`."""
    link, last = chain.links
    blocks = _blocks(gpu, chain, tile)
    problem = sm90_splitk.problem(gpu.for_part(last, chain, link.out, 0), last, tile, blocks=blocks)
    gpu.tile(tile, tile.shared_bytes).launch(
        (blocks, 1, 1), tile.threads, [*first, problem], stream=gpu.stream.handle, early=True
    )


def _blocks(gpu: Gpu, chain: ops.Chain, tile: ChainTile) -> int:
    """Of threads: each multiprocessor has one."""
    out = chain.out.shape
    tiles = gpu.rows(chain.out) * -(-out.height * WIDE // tile.rows) * -(-out.width // WIDE)
    return min(gpu.target.multiprocessors, tiles)
