"""Programs that are made to be timed, each of one network with other choices of algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from engine.arrays import Array
from engine.backends.cuda import conv
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.lower import memory_layout
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import Target
from engine.backends.cuda.runtime.program import CudaProgram
from engine.errors import DeviceError
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Head, Op

_KEPT = 2  # ways in which the arrays of an op are kept: that of the fastest so far, and another


class Trials:
    """Makes them; what they have in common is prepared once."""

    def __init__(self, context: Context, plan: Plan, target: Target) -> None:
        self._context = context
        self._plan = plan
        self._target = target
        self._kept: dict[Op | Head, dict[Choice | None, Mapping[str, Array]]] = {}
        image = np.random.default_rng(1).random(plan.source.shape.sides, np.float32)
        self._images = np.broadcast_to(image, (target.rows(plan.source), *image.shape))

    def make(self, choices: Mapping[str, Choice]) -> Trial | None:
        """None where memory is short."""
        target = replace(self._target, measured=dict(choices))
        try:
            program = CudaProgram(self._context, self._plan, target, slots=1, prepare=self._prepare)
        except DeviceError:
            return None
        try:
            return Trial(program, self._images)
        except DeviceError:
            program.close()
            return None

    def _prepare(self, plan: Plan, target: Target, item: Op | Head) -> Mapping[str, Array]:
        way = conv.choose(target, item) if isinstance(item, Conv2d) else None
        kept = self._kept.setdefault(item, {})
        if way not in kept:
            kept[way] = memory_layout.prepare(plan, target, item)
        kept[way] = kept.pop(way)  # the latest
        if len(kept) > _KEPT:
            del kept[next(iter(kept))]
        return kept[way]


class Trial:
    """A program, and images that it runs again and again."""

    def __init__(self, program: CudaProgram, images: Array) -> None:
        self._program = program
        self._held = ExitStack()
        self._times = self._held.enter_context(program.repeating(images))

    def times(self, runs: int) -> list[float]:
        """Milliseconds of each of so many runs."""
        return self._times(runs)

    def close(self) -> None:
        self._held.close()
        self._program.close()
