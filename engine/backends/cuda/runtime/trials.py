"""Programs for the timing of one network with other choices of algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.lower import lowering, weights
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.ops.target import Choice
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.tune.tune_network import Trial
from engine.errors import DeviceError
from engine.plan.ops import Head, Op

_KEPT = 2  # prepared forms of one op's arrays: for the fastest choice so far, and for another


class Trials:
    """A factory of trials of one network; arrays that several of them use are prepared once."""

    def __init__(self, context: Context, fused: Lowered) -> None:
        self._context = context
        self._fused = fused
        self._prepared: dict[Op | Head, dict[Choice | None, Mapping[str, Array]]] = {}
        source = fused.plan.source
        image = np.random.default_rng(1).random(source.shape.sides, np.float32)
        self._images = np.broadcast_to(image, (fused.target.rows(source), *image.shape))

    def make(self, choices: Mapping[str, Choice]) -> Trial | None:
        """Return a trial with these choices, or None if memory does not suffice."""
        target = replace(self._fused.target, measured=dict(choices))
        lowered = lowering.place(replace(self._fused, target=target))
        try:
            program = CudaProgram(self._context, lowered, slots=1, prepare=self._prepare)
        except DeviceError:
            return None
        with suppress(DeviceError), ExitStack() as held:
            held.callback(program.close)
            times = held.enter_context(program.repeating(self._images))
            return Trial(times, held.pop_all().close)
        return None

    def _prepare(self, lowered: Lowered, step: Step | Decoder) -> Mapping[str, Array]:
        """Prepare the arrays of a step, or reuse those of an earlier trial with this choice."""
        choice = step.choice if isinstance(step, Step) else None
        known = self._prepared.setdefault(step.op, {})
        if choice not in known:
            known[choice] = weights.prepare(lowered, step)
        known[choice] = known.pop(choice)  # most recently used
        if len(known) > _KEPT:
            del known[next(iter(known))]
        return known[choice]
