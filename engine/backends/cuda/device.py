"""CudaDevice: one card and the programs compiled for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any
from weakref import WeakSet, finalize

from numpy.typing import NDArray

from engine.backends.base import Peaks
from engine.backends.cuda import conv
from engine.backends.cuda.driver import graphs
from engine.backends.cuda.driver.context import Card, Context
from engine.backends.cuda.lower import (
    PASSES,
    fold_factors,
    fuse_chains,
    memory_layout,
    squeeze_excite,
)
from engine.backends.cuda.lower.precision_policy import floats
from engine.backends.cuda.ops import library  # noqa: F401  its import registers how each op is run
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import VALUE_BYTES, Target
from engine.backends.cuda.runtime import hardware_peaks
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.runtime.trials import Trials
from engine.backends.cuda.tune.tune_layers import (
    PLAIN,
    SECONDS,
    Tuner,
    measure,
    shortlist,
    time_limit,
)
from engine.errors import InputError, suggest
from engine.plan.build import Plan
from engine.plan.ops import Conv2d

_log = logging.getLogger(__name__)


class CudaDevice:
    """Owns a context on a thread; a program that it compiled lives no longer than it."""

    passes = PASSES

    def __init__(self, index: int = 0) -> None:
        self.name = f"cuda:{index}"
        self.measured: dict[str, Choice] = {}  # the fastest algorithm by a convolution's signature
        self._tuner: Tuner | None = None
        self._programs: WeakSet[CudaProgram] = WeakSet()
        self._context = Context(self.name, index)
        finalize(self, self._context.close)

    @property
    def card(self) -> Card:
        return self._context.card

    def describe(self) -> str:
        version = self._context.run(self._context.driver.get_driver_version)
        return f"{self.card.model}, driver for CUDA {version // 1000}.{version % 1000 // 10}"

    def compile(
        self,
        plan: Plan,
        *,
        batch: int = 1,
        precision: str = "float32",
        graph: bool = True,
        algorithm: str | None = None,
        tune: bool = True,
    ) -> CudaProgram:
        """Make the plan ready; `graph` records and replays, `algorithm` forces one on Conv2d.

        With `tune`, convolutions that this card has not met are measured, for at most ENGINE_TUNE
        seconds; who gives more than the usual ten lets the network as a whole be settled.
        """
        plan = fold_factors.fold(plan, self._target(plan, batch, precision, algorithm))
        target = self._target(plan, batch, precision, algorithm)
        plan = fuse_chains.join(plan, target)
        if target.precision != precision:
            _log.info("%s: runs in float32: %s would change its results", self.name, precision)
        limit = time_limit() if tune and algorithm is None else 0
        if limit:
            self._tune(plan, target, limit, as_a_whole=graph)
        target = replace(target, measured=self._choices(plan, target))
        program = CudaProgram(self._context, plan, target, has_graphs=graph)
        self._programs.add(program)
        try:
            program.check_range()
        except BaseException:
            program.close()
            raise
        return program

    def _tune(self, plan: Plan, target: Target, limit: float, *, as_a_whole: bool) -> None:
        """Measure what this card has not met, then the network as a whole.

        Of the usual time that gets no more than measuring took, so that what is small or known is
        loaded fast; of more than that, all that is left.
        """
        self._tuner = self._tuner or Tuner(self._context, self.measured)
        start = monotonic()
        is_new = False
        for each in dict.fromkeys((target.precision, "float32")):
            part = tuple(op for op in plan.ops if target.of(op).precision == each)
            alike = target if each == target.precision else target.in_floats()
            left = limit - (monotonic() - start)
            if left > 0:
                is_new |= self._tuner.tune(replace(plan, ops=part), alike, left)
        taken = monotonic() - start
        left = limit - taken if limit > SECONDS else min(limit - taken, taken)
        if as_a_whole and left > 0 and (is_new or limit > SECONDS):
            trials = Trials(self._context, plan, target)
            self._tuner.settle(plan, target, trials.make, left)

    def _choices(self, plan: Plan, target: Target) -> dict[str, Choice]:
        """A copy: what is measured later must not change what a program has prepared."""
        tuner = self._tuner
        return dict(self.measured) if tuner is None else tuner.choices_for(plan, target)

    def algorithms(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, ...]:
        """Those that can run this convolution of a plan."""
        return tuple(map(str, conv.candidates(self._target(plan, batch, precision), op)))

    def algorithm_times(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, dict[str, float]]:
        """The algorithm that would run a convolution; milliseconds of those worth a look.

        These are what the tuner tries, and the plain ones, which it may not.
        """
        target = self._target(plan, batch, precision)
        target = replace(target, measured=self._choices(plan, target)).of(op)
        chosen = conv.choose(target, op)
        plain = [each for each in conv.candidates(target, op) if each.algorithm in PLAIN]
        choices = dict.fromkeys([chosen, *shortlist(target, op), *plain])
        time = partial(measure, self._context, target, op, gate=squeeze_excite.behind(plan).get(op))
        times = {str(each): self._context.run(partial(time, each, inf)) for each in choices}
        return str(chosen), times

    def peaks(self, precision: str) -> Peaks | None:
        """The most that this card could do; None where it is not known."""
        return hardware_peaks.peaks(self.card, precision)

    def free_memory(self) -> int:
        """Bytes of this card that nobody holds, in this process or another."""
        free: int = self._context.run(lambda: self._context.driver.mem_get_info()[0])
        return free

    def read(self, pointer: int, values: NDArray[Any]) -> None:
        """Fill `values` from memory of this card that anyone has written."""

        def copy() -> None:
            graphs.synchronize(self._context.driver)
            self._context.driver.memcpy_dtoh(values, pointer)

        self._context.run(copy)

    def allocate(self, size: int) -> tuple[int, Callable[[], None]]:
        """The pointer to a block of memory, and what frees it some time; any thread may call it."""
        block = self._context.run(lambda: self._context.driver.mem_alloc(size))
        return int(block), partial(self._context.post, block.free)

    def _target(
        self, plan: Plan, batch: int, precision: str, algorithm: str | None = None
    ) -> Target:
        if precision not in VALUE_BYTES:
            known = " or ".join(VALUE_BYTES)
            is_of_cpus = precision == "float64"
            hint = " CPUs have it: device cpu" if is_of_cpus else suggest(precision, VALUE_BYTES)
            raise InputError(f"{self.name}: precision: expected {known}, got {precision!r}.{hint}")
        if batch < 1:
            raise InputError(f"{self.name}: batch: expected at least 1, got {batch}")
        plan = fuse_chains.part(plan)  # joined or not, it computes alike
        kept = floats(plan, precision)
        if kept.issuperset(plan.tensors):  # and by the same algorithms as when asked for float32
            precision, kept = "float32", frozenset()
        target = Target(
            batch=batch,
            precision=precision,
            capability=self.card.capability,
            multiprocessors=self.card.multiprocessors,
            algorithm=algorithm,
            floats=kept,
        )
        return replace(target, misaligned=memory_layout.misaligned(plan, target))

    def close_programs(self) -> None:
        for program in tuple(self._programs):
            program.close()

    def close(self) -> None:
        self.close_programs()
        self._context.close()
