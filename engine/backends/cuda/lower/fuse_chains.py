"""Two convolutions as one, where a kernel knows how: what lies between them is never stored."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from engine.backends.cuda.conv import sm90_fused_bottleneck, sm90_fused_stem
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.lower import neighbours
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target, runs
from engine.plan.build import Plan
from engine.plan.ops import Chain, Conv2d, Op

_KERNELS = {"opening": sm90_fused_stem, "squeeze": sm90_fused_bottleneck}


def join(plan: Plan, target: Target) -> Plan:
    """Conv2d, Conv2d -> Chain. Who wants a certain algorithm gets it."""
    if target.algorithm is not None:
        return plan

    def made_of(first: Op, second: Op) -> Chain | None:
        if not isinstance(first, Conv2d) or not isinstance(second, Conv2d):
            return None
        chain = Chain(second.out, (first, second))
        return chain if second.src == first.out and name(target, chain) else None

    return neighbours.join(plan, made_of)


def part(plan: Plan) -> Plan:
    """The convolutions of every chain one by one, as they were."""
    links = (op.links if isinstance(op, Chain) else (op,) for op in plan.ops)
    return replace(plan, ops=tuple(op for each in links for op in each))


def name(target: Target, chain: Chain) -> str:
    """Of the kernel that makes it; none where none can."""
    return next((name for name, each in _KERNELS.items() if each.supports(target, chain)), "")


def tile(target: Target, chain: Chain) -> Tile:
    """What has to be compiled for it."""
    made: Tile = _kernel(target, chain).tile(target, chain)
    return made


def _prepare(target: Target, chain: Chain, constants: Arrays) -> Arrays:
    first, second = (
        {
            key.removeprefix(prefix): values
            for key, values in constants.items()
            if key.startswith(prefix)
        }
        for prefix in ("0.", "1.")
    )
    made: Arrays = _kernel(target, chain).prepare(target, chain, first, second)
    return made


@runs(Chain, prepare=_prepare)
def chain(gpu: Gpu, op: Chain) -> None:
    _kernel(gpu.target, op).enqueue(gpu, op)


def _kernel(target: Target, chain: Chain) -> ModuleType:
    return _KERNELS[name(target, chain)]
