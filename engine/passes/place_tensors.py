"""Give every tensor an offset in one arena; tensors with disjoint lifetimes share memory.

Recurrent states are excluded: they have memory of their own.
"""

from __future__ import annotations

from dataclasses import replace

from engine.passes.packing import Lifetime, pack
from engine.plan.build import Arena, Plan
from engine.plan.ops import Tensor

ALIGNMENT = 16  # values: 64 bytes of float32, a cache line


def place_tensors(plan: Plan) -> Plan:
    lives = lifetimes(plan)
    offsets = pack(tuple(lives.values()))
    size = max(offset + life.size for offset, life in zip(offsets, lives.values(), strict=True))
    return replace(plan, arena=Arena(dict(zip(lives, offsets, strict=True)), size))


def lifetimes(plan: Plan) -> dict[Tensor, Lifetime]:
    """Return the first and last op that use each tensor that owns memory, or a view of it."""
    end = len(plan.ops)
    first = {plan.source: -1}
    last = {plan.source: -1}
    for position, op in enumerate(plan.ops):
        for tensor in (*op.reads, op.out):
            first.setdefault(tensor, position)
            last[tensor] = position
    for tensor in plan.kept:
        last[tensor] = end
    return _by_root(plan, first, last)


def _by_root(
    plan: Plan, first: dict[Tensor, int], last: dict[Tensor, int]
) -> dict[Tensor, Lifetime]:
    lives: dict[Tensor, Lifetime] = {}
    for tensor, end in last.items():
        root = plan.root(tensor)
        if root.is_state:
            continue
        start = first.get(tensor, end)
        if root in lives:
            start, end = min(start, lives[root].first), max(end, lives[root].last)
        lives[root] = Lifetime(_aligned(root.shape.size * root.steps), start, end)
    return lives


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
