"""Convolution algorithms, one family per file, and the choice among them.

Every module of this folder that defines `ALGORITHMS` is part of the registry. An algorithm that
cannot fuse what precedes or follows a convolution runs unfused, which is a field of the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from engine.backends.cuda.conv import kernel_args, unfused
from engine.backends.cuda.conv.algorithm import Algorithm, KeepingConv2d, ScaledConv2d
from engine.backends.cuda.ops.target import Choice, Target
from engine.errors import DeviceError
from engine.plan import ops

__all__ = ["ALGORITHMS", "Algorithm", "Choice", "candidates", "choose", "signature"]

_SHORT_DEPTH = 450  # for longer sums the fastest kernel and a separate pool win
_SMALL_GRID = 1 << 14  # outputs of a channel; for fewer, a second launch costs more than it saves
_FEW_PIXELS = 8  # for so few, one warp per value is fastest


def _registered() -> dict[str, Algorithm]:
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = [each for module in modules for each in getattr(module, "ALGORITHMS", ())]
    return {each.name: each for each in sorted(found, key=lambda each: -each.priority)}


ALGORITHMS: Mapping[str, Algorithm] = _registered()


def get(choice: Choice) -> Algorithm:
    """Return the algorithm that a choice names, unfused if it says so."""
    algorithm = ALGORITHMS[choice.algorithm]
    return unfused.Unfused(algorithm) if choice.unfused else algorithm


def candidates(target: Target, op: ops.Conv2d) -> tuple[Choice, ...]:
    """Return every choice that can run this convolution."""
    target = target.of(op)
    choices = (Choice(name, unfused) for unfused in (False, True) for name in ALGORITHMS)
    return tuple(choice for choice in choices if get(choice).can_run(target, op))


def signature(target: Target, op: ops.Conv2d) -> str:
    """Return what a measurement depends on: layers of equal signature share one."""
    target = target.of(op)
    source = "x".join(map(str, op.src.shape.sides))
    weight = "x".join(map(str, op.weight.shape))
    window = ",".join(map(str, (*op.stride, *op.padding, *op.dilation, op.groups)))
    extras = f"{int(op.signed)}{int(op.bias is not None)}{kernel_args.residual_mode(op)}"
    extras += "".join(str(target.bytes_of(each)) for each in (op.src, op.out))
    kinds = f"{op.activation},{op.last_activation}"
    kinds += ",pool" if op.pool else ",yolo" if op.yolo else ",upsample" if op.upsample else ""
    kinds += ",scaled" if isinstance(op, ScaledConv2d) else ""
    kinds += ",kept" if isinstance(op, KeepingConv2d) else ""
    rows = target.rows(op.out)
    return f"{target.precision} {rows} {source} {weight} {window} {extras} {kinds}"


def choose(target: Target, op: ops.Conv2d) -> Choice:
    """Return the forced algorithm, else the measured one, else that of the rule of thumb."""
    target = target.of(op)
    forced = None if target.algorithm is None else Choice.parse(target.algorithm)
    for choice in (forced, target.measured.get(signature(target, op))):
        if choice is None or choice.algorithm not in ALGORITHMS:
            continue
        for each in (choice, choice._replace(unfused=True)):
            if get(each).can_run(target, op):
                return each
    return rule_of_thumb(target, op)


def rule_of_thumb(target: Target, op: ops.Conv2d) -> Choice:
    """Return what is likely to be fastest, for a convolution that was not measured."""
    target = target.of(op)
    able = [each for each in ALGORITHMS.values() if each.can_run(target, op)]
    if unfused.has_more(op) and not _is_better_fused(able, target, op):
        able = []
    if target.rows(op.out) * op.out.shape.area <= _FEW_PIXELS:
        able = [each for each in able if each.name == "dot"] or able
    ranks = {
        each.name: (-each.priority, cost)
        for each in able
        if (cost := each.rule_of_thumb(target, op)) is not None
    }
    if ranks:
        return Choice(min(ranks, key=ranks.__getitem__))
    if not unfused.has_more(op):
        raise DeviceError(
            f"cuda: a convolution of {op.src.shape} to {op.out.shape} in {target.precision}: "
            "no algorithm can run it on this card. Try another precision"
        )
    return rule_of_thumb(*unfused.alone(target, op))._replace(unfused=True)


def _is_better_fused(able: list[Algorithm], target: Target, op: ops.Conv2d) -> bool:
    """Return whether one kernel that does everything should beat two kernels."""
    is_short = op.pool is None or kernel_args.depth(op) <= _SHORT_DEPTH
    is_small = target.rows(op.out) * op.grid.area <= _SMALL_GRID
    return any(each.yolo for each in able) and (is_short or is_small)
