"""Which convolutions of a plan are measured, and which algorithms are tried on each."""

from __future__ import annotations

from collections import Counter

from engine.backends.cuda import conv
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.target import Target
from engine.plan.build import Plan
from engine.plan.ops import Conv2d

VARIANTS = 9  # of families whose estimates rank their variants well
FEW_VARIANTS = 2  # of other families
PLAIN = frozenset({"direct", "tiled"})
_ALIKE = 2  # variants that do the same work


def distinct(plan: Plan, target: Target) -> list[Conv2d]:
    """Return a convolution of each signature, the most expensive signature first.

    Of several, the one whose place in memory suits most algorithms.
    """
    alike: dict[str, list[Conv2d]] = {}
    for op in plan.ops:
        if isinstance(op, Conv2d):
            alike.setdefault(conv.signature(target, op), []).append(op)
    groups = sorted(alike.values(), key=lambda group: -len(group) * _products(target, group[0]))
    return [
        group[0] if len(group) == 1 else max(group, key=lambda op: len(conv.candidates(target, op)))
        for group in groups
    ]


def _products(target: Target, op: Conv2d) -> int:
    window = op.weight.shape[1] * op.weight.shape[2] * op.weight.shape[3]
    return target.rows(op.out) * op.out.shape.size * window


def shortlist(target: Target, op: Conv2d) -> list[Choice]:
    """Return the rule of thumb, the most promising variants of each family, and single algorithms.

    Plain loops are far slower than tensor cores and slow to measure: they are tried only without.
    """
    able = conv.candidates(target, op)
    estimates = {each: conv.estimate(target, op, each) for each in able}
    variants = {each: cycles for each, cycles in estimates.items() if cycles is not None}
    families: dict[tuple[str, bool], list[Choice]] = {}
    for each in sorted(variants, key=variants.__getitem__):
        families.setdefault(conv.family(each), []).append(each)
    promising = [each for family in families.values() for each in _best_of(family)]
    single = [each for each in able if each not in variants]
    if promising:
        single = [each for each in single if each.algorithm not in PLAIN]
    return list(dict.fromkeys([conv.rule_of_thumb(target, op), *promising, *single]))


def _best_of(family: list[Choice]) -> list[Choice]:
    """Return the first few, and few that differ only in the shared memory that they take."""
    seen: Counter[object] = Counter()
    found = []
    for choice in family:
        work = conv.ALGORITHMS[choice.algorithm].work
        seen[work] += 1
        if seen[work] <= _ALIKE:
            found.append(choice)
    is_large = conv.ALGORITHMS[family[0].algorithm].large
    return found[: VARIANTS if is_large else FEW_VARIANTS]
