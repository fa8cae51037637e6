"""Hopper kernels that fuse two convolutions; the feature map between stays in shared memory.

The second is 3x3 and has filters as the rows of its GEMM, as in sm90_swapped.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any

from engine.backends.cuda.conv import kernel_args, sm90_base, tensor_cores, unfused
from engine.backends.cuda.conv.kernel_args import KernelArgs, struct
from engine.backends.cuda.conv.sm90_rgb_stem import RGB_STEM
from engine.backends.cuda.driver import launch
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import COLOUR_PITCH, Choice, Target
from engine.plan import ops

_WIDTH = 8  # pixels per line of a block
_BETWEEN = 32  # channels of the map between the convolutions
_FILTERS = 64  # rows of the second convolution's GEMM
_LEAST_FILTERS = 40
_TAPS = (3, 3)

_STEM_HEIGHT = 15  # lines per block
_STEM_TEAMS = 4
_STEM_TEAM_BYTES = (4 * 9 << 10) + (5 << 10)  # four patches of the map between, and their input

_HEIGHT = 16  # lines per block of a bottleneck
_TEAMS = 3
_CHANNELS = 64  # both of the input and of the output
_GROUPS = 3  # groups of 64 pixels in a patch
_TEAM_BYTES = _GROUPS * 64 * (2 * 128 + 64)  # two patches, and the map between

StemArgs = struct("sm90_fused_stem.cu", "StemArgs")
BottleneckArgs = struct("sm90_fused_bottleneck.cu", "FirstArgs")


@dataclass(frozen=True)
class FusedTile(sm90_base.Sm90Tile):
    """A tile: pixels by filters of the second convolution; `depth` is that of the input."""

    between: Annotated[int, "BETWEEN"] = _BETWEEN
    teams: Annotated[int, "TEAMS"] = 1
    taps: Annotated[tuple[int, int], "TAPS_Y", "TAPS_X"] = _TAPS
    slices: Annotated[int, "SLICES"] = 1
    stride: Annotated[int, "STRIDE"] = 1
    first_kind: Annotated[int, "FIRST_KIND"] = 0
    first_columns: int = _BETWEEN  # columns of the first convolution's GEMM
    first_bytes: int = 0  # bytes of the first convolution's weights
    team_bytes: int = 0  # shared memory per team
    parts: int = 0  # values per weight of a stem: see RgbStemTile

    @property
    def defines(self) -> Mapping[str, int]:
        parts = {"PARTS": self.parts} if self.parts else {}
        return {**super().defines, "BM": self.columns, "BN": self.rows, **parts}

    @property
    def headers(self) -> Mapping[str, str]:
        widths = self.rows, self.first_columns
        return {"wgmma.cuh": "".join(wgmma.header(each, self.mode) for each in widths)}

    @property
    def threads(self) -> int:
        return 128 * self.teams

    @property
    def shared_bytes(self) -> int:
        """The bytes of the teams, with two barriers each, of all weights, and of their barrier."""
        weights = prod(_TAPS) * self.columns * _BETWEEN * self.value_bytes + self.first_bytes
        teams = self.teams * (self.team_bytes + sm90_base.BARRIERS)
        return teams + weights + 8 + sm90_base.ALIGNMENT


class FusedPair(ABC):
    """A kernel for two convolutions; its methods are those of an algorithm, for a chain."""

    name: str

    def supports(self, target: Target, chain: ops.Chain) -> bool:
        """Return whether both convolutions and the map between suit the kernel."""
        first, second = chain.links
        if type(first) is not ops.Conv2d or type(second) is not ops.Conv2d:
            return False  # such as one that multiplies its input by factors
        if not sm90_base.can_run(target, second):
            return False
        if (second.kernel, second.padding, second.dilation) != (_TAPS, (1, 1, 1, 1), (1, 1)):
            return False
        if unfused.has_more(second):
            return False
        if first.out.shape != second.src.shape or first.out.shape.channels != _BETWEEN:
            return False
        if target.bytes_of(first.out) != 2 or target.bytes_of(second.out) > 2:
            return False
        if not sm90_base.epilogue_params(target, second)["is_whole"]:
            return False
        channels = second.out.shape.channels
        return _LEAST_FILTERS <= channels <= _FILTERS and self._suits(target, first, second)

    def workspace(self, target: Target, chain: ops.Chain) -> int:
        return 0

    def prepare(self, target: Target, chain: ops.Chain, constants: Arrays) -> Arrays:
        """Return the arrays of the second convolution, and those of the first as `first_...`.

        `constants` have the number of their link before their names.
        """
        first, second = (
            {name[2:]: values for name, values in constants.items() if name.startswith(prefix)}
            for prefix in ("0.", "1.")
        )
        tile, (before, last) = self.tile(target, chain), chain.links
        weight = sm90_base.filters_by_lanes(second["weight"], tile.columns, blocks=1)
        own = sm90_base.prepare(replace(tile, depth=_BETWEEN), last, {**second, "weight": weight})
        made = self._prepare_first(target, before, tile, first)
        return {**{f"first_{name}": values for name, values in made.items()}, **own}

    def enqueue(self, gpu: Gpu, chain: ops.Chain) -> None:
        """Enqueue the kernel with one thread block for each SM."""
        tile, (link, last) = self.tile(gpu.target, chain), chain.links
        out = chain.out.shape
        down, across = -(-out.height * _WIDTH // tile.rows), -(-out.width // _WIDTH)
        blocks = min(gpu.target.multiprocessors, gpu.rows(chain.out) * down * across)
        first = self._first_arguments(gpu, chain, tile)
        own = gpu.for_part(last, chain, link.out, 0)
        arguments = sm90_base.arguments(own, last, tile, blocks=blocks)
        tensor_cores.launch(gpu, tile, blocks, *first, arguments)

    @abstractmethod
    def tile(self, target: Target, chain: ops.Chain) -> FusedTile:
        """Return the kernel that has to be compiled for this chain."""

    def _tile(self, target: Target, chain: ops.Chain, **own: Any) -> FusedTile:
        """Return a tile for one block on an SM, which has the whole sum over k at once."""
        alone = {"columns": _FILTERS, "stages": 1, "consumers": 1, "blocks": 1, **own}
        epilogue = sm90_base.epilogue_params(target, chain.links[1])
        return FusedTile(kernel=self.name, **alone, **epilogue)

    @abstractmethod
    def _suits(self, target: Target, first: ops.Conv2d, second: ops.Conv2d) -> bool:
        """Return whether it computes these two, apart from what `supports` asks of all."""

    @abstractmethod
    def _prepare_first(
        self, target: Target, first: ops.Conv2d, tile: FusedTile, constants: Arrays
    ) -> Arrays: ...

    @abstractmethod
    def _first_arguments(
        self, gpu: Gpu, chain: ops.Chain, tile: FusedTile
    ) -> tuple[KernelArgs | launch.TensorMap, ...]:
        """Return the kernel's arguments before those of the second convolution."""


class FusedStem(FusedPair):
    """The first two convolutions of many networks.

    The map between is the largest of its network. Where the second convolution halves it, writing
    it and reading it again take longer than both convolutions.
    """

    name = "sm90_fused_stem"

    def tile(self, target: Target, chain: ops.Chain) -> FusedTile:
        stem = RGB_STEM.tile(target, chain.links[0])
        return self._tile(
            target,
            chain,
            rows=_WIDTH * _STEM_HEIGHT,
            depth=_BETWEEN,
            teams=_STEM_TEAMS,
            stride=2,
            first_kind=stem.kind,
            first_columns=stem.columns,
            first_bytes=stem.weight_bytes,
            team_bytes=_STEM_TEAM_BYTES,
            parts=stem.parts,
        )

    def _suits(self, target: Target, first: ops.Conv2d, second: ops.Conv2d) -> bool:
        if not RGB_STEM.supports(target, first) or second.stride != (2, 2):
            return False
        if not first.is_bare or not second.is_bare:
            return False
        return (first.kernel, first.stride, first.padding) == (_TAPS, (1, 1), (1, 1, 1, 1))

    def _prepare_first(
        self, target: Target, first: ops.Conv2d, tile: FusedTile, constants: Arrays
    ) -> Arrays:
        return RGB_STEM.prepare(target, first, constants)

    def _first_arguments(
        self, gpu: Gpu, chain: ops.Chain, tile: FusedTile
    ) -> tuple[KernelArgs, ...]:
        assert gpu.pitch(chain.src) == COLOUR_PITCH, "only pictures in colour"
        first = StemArgs(
            bias=gpu.array(chain, "first_bias"),
            weight=gpu.array(chain, "first_weight"),
            picture=gpu[chain.src],
            height=chain.src.shape.height,
            width=chain.src.shape.width,
        )
        return (first,)


class FusedBottleneck(FusedPair):
    """A residual block of few channels: 1x1, 3x3, and the addition of the block's input.

    On large feature maps memory bounds it. Here the input is loaded once, as an operand and as
    the residual.
    """

    name = "sm90_fused_bottleneck"

    def tile(self, target: Target, chain: ops.Chain) -> FusedTile:
        return self._tile(
            target,
            chain,
            rows=_WIDTH * _HEIGHT,
            depth=_CHANNELS,
            teams=_TEAMS,
            first_kind=kernel_args.kinds(chain.links[0])[0],
            first_bytes=_BETWEEN * _CHANNELS * 2,
            team_bytes=_TEAM_BYTES,
        )

    def _suits(self, target: Target, first: ops.Conv2d, second: ops.Conv2d) -> bool:
        if not sm90_base.can_run(target, first) or not first.is_pointwise or not first.is_bare:
            return False
        if target.bytes_of(first.src) != 2 or first.src.shape.channels != _CHANNELS:
            return False
        if target.bytes_of(second.out) != 2:
            return False
        return second.stride == (1, 1) and second.residual == first.src

    def _prepare_first(
        self, target: Target, first: ops.Conv2d, tile: FusedTile, constants: Arrays
    ) -> Arrays:
        return sm90_base.prepare(replace(tile, columns=_BETWEEN), first, constants)

    def _first_arguments(
        self, gpu: Gpu, chain: ops.Chain, tile: FusedTile
    ) -> tuple[KernelArgs | launch.TensorMap, ...]:
        boxes = launch.boxes_map(
            sm90_base.source(gpu, chain.links[0], tile),
            height=_HEIGHT + _TAPS[0] - 1,
            width=_WIDTH + _TAPS[1] - 1,
            channels=_CHANNELS,
        )
        bias, weight = (gpu.array(chain, f"first_{name}") for name in ("bias", "weight"))
        return boxes, BottleneckArgs(bias=bias, weight=weight)


_KERNELS: Mapping[str, FusedPair] = {each.name: each for each in (FusedStem(), FusedBottleneck())}


def get(choice: Choice) -> FusedPair:
    return _KERNELS[choice.algorithm]


def choose(target: Target, chain: ops.Chain) -> Choice | None:
    """Return the kernel that computes a chain, if there is one."""
    able = (name for name, each in _KERNELS.items() if each.supports(target, chain))
    return next(map(Choice, able), None)
