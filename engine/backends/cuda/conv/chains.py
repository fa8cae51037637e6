"""The kernels that compute two convolutions, and the choice among them."""

from __future__ import annotations

from types import ModuleType

from engine.backends.cuda.conv import sm90_fused_bottleneck, sm90_fused_stem
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.ops import Chain

_KERNELS: dict[str, ModuleType] = {
    "sm90_fused_stem": sm90_fused_stem,
    "sm90_fused_bottleneck": sm90_fused_bottleneck,
}


def choose(target: Target, chain: Chain) -> Choice | None:
    """Return the kernel that computes a chain, if there is one."""
    able = (name for name, each in _KERNELS.items() if each.supports(target, chain))
    return next(map(Choice, able), None)


def tile(target: Target, chain: Chain, choice: Choice) -> Tile:
    made: Tile = _KERNELS[choice.algorithm].tile(target, chain)
    return made


def prepare(target: Target, chain: Chain, choice: Choice, constants: Arrays) -> Arrays:
    """`constants` have the number of their link before their names."""
    first, second = (
        {
            key.removeprefix(prefix): values
            for key, values in constants.items()
            if key.startswith(prefix)
        }
        for prefix in ("0.", "1.")
    )
    made: Arrays = _KERNELS[choice.algorithm].prepare(target, chain, first, second)
    return made


def enqueue(gpu: Gpu, chain: Chain, choice: Choice) -> None:
    _KERNELS[choice.algorithm].enqueue(gpu, chain)
