"""Choose algorithms for a network that runs before it is tuned, such that few tiles are compiled.

A tile takes at least 0.3 s of processor time to compile, for which the first result waits. The
choices of the tuner replace these as soon as it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from engine.backends.cuda import conv
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.ops import Conv2d

_SLOWER = 1.5  # times the cycles of what would be chosen otherwise


def with_few_tiles(fused: Lowered) -> Lowered:
    """Return the network with a choice for each convolution; what was measured stays.

    The candidates are the tiles that would be used somewhere in it. First comes the one that suits
    most convolutions, then the one that suits most of the others, and so on.
    """
    target = fused.target
    convolutions = {
        conv.signature(target, op): op for op in fused.plan.ops if isinstance(op, Conv2d)
    }
    found = {key: conv.choose(target, op) for key, op in convolutions.items()}
    used = dict.fromkeys(found.values())
    left = {
        key: _by_tile(target, op, found[key], () if key in target.measured else used)
        for key, op in convolutions.items()
    }
    while counts := Counter(tile for suitable in left.values() for tile in suitable):
        ((tile, _),) = counts.most_common(1)
        for key in [key for key, suitable in left.items() if tile in suitable]:
            found[key] = left.pop(key)[tile]
    return replace(fused, target=replace(target, measured={**target.measured, **found}))


def _by_tile(
    target: Target, op: Conv2d, usual: Choice, used: Iterable[Choice]
) -> dict[Tile, Choice]:
    """Return the usual tile, and others that take little longer, each with its best choice."""
    target = target.of(op)
    tile = conv.get(usual).tile(target, op)
    if tile is None:
        return {}
    found = {tile: usual}
    cycles = conv.get(usual).estimate(target, op)
    if cycles is None:  # it has no variants to compare with
        return found
    able = [each for each in used if conv.get(each).can_run(target, op)]
    taken = {each: conv.get(each).estimate(target, op) or inf for each in able}
    for choice in sorted(able, key=taken.__getitem__):
        tile = conv.get(choice).tile(target, op)
        if tile is not None and taken[choice] <= _SLOWER * cycles:
            found.setdefault(tile, choice)
    return found
