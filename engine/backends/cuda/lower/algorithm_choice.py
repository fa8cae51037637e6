"""Choose the algorithm of every convolution. Nothing after this pass chooses again."""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda import conv
from engine.backends.cuda.conv import chains
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.target import Target
from engine.plan.ops import Chain, Conv2d, Op


def choose_algorithms(lowered: Lowered) -> Lowered:
    """Make a step of every op and of every head."""
    steps = tuple(Step(op, _choice(lowered.target, op)) for op in lowered.plan.ops)
    return replace(lowered, steps=steps, decoders=tuple(map(Decoder, lowered.plan.heads)))


def _choice(target: Target, op: Op) -> Choice | None:
    if isinstance(op, Conv2d):
        return conv.choose(target, op)
    return chains.choose(target, op) if isinstance(op, Chain) else None
