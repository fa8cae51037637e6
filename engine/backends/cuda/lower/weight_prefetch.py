"""Name for each step the convolution whose weights it should bring into the L2 cache.

Kernels that run on few bytes of their own have bandwidth to spare, and weights are read once.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.plan.ops import Conv2d


def prefetch_weights(lowered: Lowered) -> Lowered:
    """Annotate every step with the next convolution."""
    following: Conv2d | None = None
    steps: list[Step] = []
    for step in reversed(lowered.steps):
        steps.append(replace(step, annotations=replace(step.annotations, next_conv=following)))
        following = step.op if isinstance(step.op, Conv2d) else following
    return replace(lowered, steps=tuple(reversed(steps)))
