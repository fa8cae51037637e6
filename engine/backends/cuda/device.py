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
from engine.backends.cuda.lower import PASSES, lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import VALUE_BYTES, Choice, Target
from engine.backends.cuda.runtime import hardware_peaks
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.runtime.trials import Trials
from engine.backends.cuda.tune.measure import PLAIN, measure, shortlist
from engine.backends.cuda.tune.tune_layers import SECONDS, Tuner, gates, time_limit
from engine.errors import InputError, suggest
from engine.plan.build import Plan
from engine.plan.ops import Conv2d

_log = logging.getLogger(__name__)


class CudaDevice:
    """Owns a context on a thread; its programs do not outlive it."""

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
        seconds. With more than the default of ten, the network as a whole is timed as well.
        """
        fused = self._fused(plan, batch, precision, algorithm)
        if fused.target.precision != precision:
            _log.info("%s: runs in float32: %s would change its results", self.name, precision)
        limit = time_limit() if tune and algorithm is None else 0
        if limit:
            self._tune(fused, limit, as_a_whole=graph)
        lowered = lowering.place(self._with_choices(fused))
        program = CudaProgram(self._context, lowered, has_graphs=graph)
        self._programs.add(program)
        try:
            program.check_range()
        except BaseException:
            program.close()
            raise
        return program

    def _tune(self, fused: Lowered, limit: float, *, as_a_whole: bool) -> None:
        """Measure what this card has not met, then the network as a whole.

        Within the default limit the whole network gets no more time than the measuring took, so
        that small or known networks load fast. With a longer limit it gets all that is left.
        """
        self._tuner = self._tuner or Tuner(self._context, self.measured)
        plan, target = fused.plan, fused.target
        start = monotonic()
        is_new = False
        for each in dict.fromkeys((target.precision, "float32")):
            part = tuple(op for op in plan.ops if target.of(op).precision == each)
            own = target if each == target.precision else target.in_floats()
            left = limit - (monotonic() - start)
            if left > 0:
                is_new |= self._tuner.tune(replace(plan, ops=part), own, left)
        taken = monotonic() - start
        left = limit - taken if limit > SECONDS else min(limit - taken, taken)
        if as_a_whole and left > 0 and (is_new or limit > SECONDS):
            trials = Trials(self._context, fused)
            self._tuner.tune_network(plan, target, trials.make, left)

    def _with_choices(self, fused: Lowered) -> Lowered:
        """A copy: what is measured later must not change what a program has prepared."""
        measured = (
            dict(self.measured)
            if self._tuner is None
            else self._tuner.choices_for(fused.plan, fused.target)
        )
        return replace(fused, target=replace(fused.target, measured=measured))

    def algorithms(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, ...]:
        """Return the algorithms that can run this convolution of a plan."""
        return tuple(map(str, conv.candidates(self._fused(plan, batch, precision).target, op)))

    def algorithm_times(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, dict[str, float]]:
        """Return the algorithm that would run a convolution, and milliseconds by algorithm.

        These are the candidates of the tuner, and the plain ones, which it may leave out.
        """
        target = self._with_choices(self._fused(plan, batch, precision)).target.of(op)
        chosen = conv.choose(target, op)
        plain = [each for each in conv.candidates(target, op) if each.algorithm in PLAIN]
        choices = dict.fromkeys([chosen, *shortlist(target, op), *plain])
        time = partial(measure, self._context, target, op, gate=gates(plan).get(op))
        times = {str(each): self._context.run(partial(time, each, inf)) for each in choices}
        return str(chosen), times

    def peaks(self, precision: str) -> Peaks | None:
        """Return the peak rates of this card, or None if they are unknown."""
        return hardware_peaks.peaks(self.card, precision)

    def free_memory(self) -> int:
        """Return the free bytes of device memory, as seen by all processes."""
        free: int = self._context.run(lambda: self._context.driver.mem_get_info()[0])
        return free

    def read(self, pointer: int, values: NDArray[Any]) -> None:
        """Fill `values` from memory of this card, after all work on it is done."""

        def copy() -> None:
            graphs.synchronize(self._context.driver)
            self._context.driver.memcpy_dtoh(values, pointer)

        self._context.run(copy)

    def allocate(self, size: int) -> tuple[int, Callable[[], None]]:
        """Return a pointer to new memory, and a function that any thread may call to free it."""
        block = self._context.run(lambda: self._context.driver.mem_alloc(size))
        return int(block), partial(self._context.post, block.free)

    def _fused(
        self, plan: Plan, batch: int, precision: str, algorithm: str | None = None
    ) -> Lowered:
        """Validate what was asked for and run the passes before the choice of algorithms."""
        if precision not in VALUE_BYTES:
            known = " or ".join(VALUE_BYTES)
            is_of_cpus = precision == "float64"
            hint = " CPUs have it: device cpu" if is_of_cpus else suggest(precision, VALUE_BYTES)
            raise InputError(f"{self.name}: precision: expected {known}, got {precision!r}.{hint}")
        if batch < 1:
            raise InputError(f"{self.name}: batch: expected at least 1, got {batch}")
        target = Target(
            batch=batch,
            precision=precision,
            capability=self.card.capability,
            multiprocessors=self.card.multiprocessors,
            algorithm=algorithm,
        )
        return lowering.fuse(plan, target)

    def close_programs(self) -> None:
        for program in tuple(self._programs):
            program.close()

    def close(self) -> None:
        self.close_programs()
        self._context.close()
