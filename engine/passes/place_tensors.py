"""Give every tensor a place in one arena: two share memory when one is dead before the other lives.

States are left out: they own their memory for good.
"""

from __future__ import annotations

from dataclasses import replace

from engine.passes.packing import Life, pack
from engine.plan.build import Arena, Plan
from engine.plan.ops import Tensor

ALIGNMENT = 16  # values: 64 bytes of float32, for whole vectors and whole cache lines


def place_tensors(plan: Plan) -> Plan:
    lives = lifetimes(plan)
    offsets = pack(tuple(lives.values()))
    size = max(offset + life.size for offset, life in zip(offsets, lives.values(), strict=True))
    return replace(plan, arena=Arena(dict(zip(lives, offsets, strict=True)), size))


def lifetimes(plan: Plan) -> dict[Tensor, Life]:
    """From the op that first writes a tensor, or a view of it, to the one that last reads one."""
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


def _by_root(plan: Plan, first: dict[Tensor, int], last: dict[Tensor, int]) -> dict[Tensor, Life]:
    lives: dict[Tensor, Life] = {}
    for tensor, end in last.items():
        root = plan.views[tensor].root if tensor in plan.views else tensor
        if root.is_state:
            continue
        start = first.get(tensor, end)
        if root in lives:
            start, end = min(start, lives[root].first), max(end, lives[root].last)
        lives[root] = Life(_aligned(root.shape.size * root.steps), start, end)
    return lives


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
