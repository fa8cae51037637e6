"""CudaDevice: one card and the programs compiled for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from math import inf
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Peaks
from engine.backends.cuda import conv
from engine.backends.cuda.driver import graphs, pycuda_loader
from engine.backends.cuda.driver.context import Card, Context
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Choice, Target
from engine.backends.cuda.runtime import hardware_peaks
from engine.backends.cuda.runtime.card_videos import CardVideos
from engine.backends.cuda.runtime.improvement import improve_later
from engine.backends.cuda.runtime.jpeg_decoder import CardJpegDecoder
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.runtime.trials import Trials
from engine.backends.cuda.tune import tune_layers
from engine.backends.cuda.tune.few_tiles import with_few_tiles
from engine.backends.cuda.tune.measure import PLAIN, measure, shortlist
from engine.errors import DeviceError, InputError, suggest
from engine.passes import FUSING
from engine.plan.build import Plan
from engine.plan.ops import Conv2d

_log = logging.getLogger(__name__)
_PRECISIONS = ("float32", "tf32", "float16", "int8")


class CudaDevice:
    """A card with its context on a thread; its programs do not outlive it."""

    passes = FUSING

    def __init__(self, index: int = 0) -> None:
        self.name = f"cuda:{index}"
        self._index = index
        self.measured: dict[str, Choice] = {}  # the fastest algorithm by a convolution's signature
        self._tuner: tune_layers.Tuner | None = None
        self._turn = Lock()  # one search in the background at a time
        self._programs: WeakSet[CudaProgram] = WeakSet()
        self._decoders: list[CardJpegDecoder | CardVideos] = []
        self._context = Context(self.name, index)
        finalize(self, _close, self._decoders, self._context)

    @property
    def card(self) -> Card:
        return self._context.card

    def describe(self) -> str:
        major, minor = self._context.run(partial(pycuda_loader.cuda_of, self._context.driver))
        return f"{self.card.model}, driver for CUDA {major}.{minor}"

    def compile(
        self,
        plan: Plan,
        *,
        batch: int = 1,
        precision: str = "float32",
        graph: bool = True,
        algorithm: str | None = None,
        tune: bool = True,
        waits: bool | None = None,
    ) -> CudaProgram:
        """Compile the plan; `graph` records and replays runs, `algorithm` forces one on Conv2d.

        With `tune`, convolutions that this card has not met are measured: in the background, while
        the program runs with few tiles, or for at most ENGINE_TUNE seconds before it runs; `waits`
        overrides this choice of ENGINE_TUNE. With more than ten seconds, the network as a whole is
        timed as well.
        """
        fused = self._fused(plan, batch, precision, algorithm)
        if fused.target.precision not in (precision, "float16"):
            _log.info("%s: runs in float32: %s would change its results", self.name, precision)
        limit = tune_layers.time_limit() if tune and algorithm is None else 0
        has_state = any(each.is_state for each in plan.tensors)  # which a change would lose
        is_later = (
            limit > 0
            and not (tune_layers.is_waited_for() if waits is None else waits)
            and not has_state
            and not self._knows(fused)
        )
        if limit and not is_later:
            self._tune(fused, limit, as_a_whole=graph)
        chosen = self._with_choices(fused)
        lowered = lowering.place(with_few_tiles(chosen) if is_later else chosen)
        program = CudaProgram(self._context, lowered, has_graphs=graph)
        self._programs.add(program)
        try:
            program.check_range()
        except BaseException:
            program.close()
            raise
        if is_later:
            seconds = limit if tune_layers.is_waited_for() else tune_layers.LATER_SECONDS
            search = partial(self._improved, fused, seconds, as_a_whole=graph)
            improve_later(program, search, self._turn)
        return program

    def tune(
        self,
        plan: Plan,
        *,
        batch: int,
        precision: str,
        seconds: float,
        report: Callable[[str], None],
    ) -> None:
        """Do now what compile() leaves to the background; `report` gets the progress."""
        self._tune(self._fused(plan, batch, precision), seconds, as_a_whole=True, report=report)

    def run_time(self, plan: Plan, *, batch: int, precision: str) -> float:
        """Return the milliseconds of a run with the algorithms that are known."""
        self._known_tuner()
        program = self.compile(plan, batch=batch, precision=precision, tune=False)
        source = plan.source
        images = np.random.default_rng(0).random((batch * source.steps, *source.shape.sides))
        try:
            return float(np.median(program.measure(images.astype(np.float32))))
        finally:
            program.close()

    def known_choices(self) -> dict[str, Any]:
        """Return the tuner's choices for this card, for take_choices() on another machine."""
        return self._known_tuner().export()

    def take_choices(self, choices: Any, name: str) -> int:
        """Keep choices of another machine with such a card; `name` is for messages."""
        return self._known_tuner().take(choices, name)

    def _known_tuner(self) -> tune_layers.Tuner:
        self._tuner = self._tuner or tune_layers.Tuner(self._context, self.measured)
        return self._tuner

    def _improved(self, fused: Lowered, limit: float, *, as_a_whole: bool) -> Lowered:
        for each in _by_precision(fused):
            self._known_tuner().compile_ahead(each)
        self._tune(fused, limit, as_a_whole=as_a_whole)
        return lowering.place(self._with_choices(fused))

    def _knows(self, fused: Lowered) -> bool:
        return all(self._known_tuner().knows(each) for each in _by_precision(fused))

    def _tune(
        self,
        fused: Lowered,
        limit: float,
        *,
        as_a_whole: bool,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Measure what this card has not met, then the network as a whole.

        Within the default limit the whole network gets no more time than the measuring took, so
        that small or known networks load fast. With a longer limit it gets all that is left.
        """
        tuner = self._known_tuner()
        start = monotonic()
        is_new = False
        for each in _by_precision(fused):
            left = limit - (monotonic() - start)
            if left > 0:
                is_new |= tuner.tune(each, left, report)
        taken = monotonic() - start
        left = limit - taken if limit > tune_layers.SECONDS else min(limit - taken, taken)
        if as_a_whole and left > 0 and (is_new or limit > tune_layers.SECONDS):
            trials = Trials(self._context, fused)
            report("timing the network as a whole")
            tuner.tune_network(fused, trials.make, left)

    def _with_choices(self, fused: Lowered) -> Lowered:
        """Return a copy: what is measured later must not change what a program has prepared."""
        measured = dict(self.measured) if self._tuner is None else self._tuner.choices_for(fused)
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
        time = partial(measure, self._context, target, op, gate=tune_layers.gates(plan).get(op))
        times = {str(each): self._context.run(partial(time, each, inf)) for each in choices}
        return str(chosen), times

    def peaks(self, precision: str) -> Peaks | None:
        """Return the peak rates of this card, or None if they are unknown."""
        return hardware_peaks.peaks(self.card, precision)

    def free_memory(self) -> int:
        """Return the free bytes of device memory, as seen by all processes."""
        return self._context.run(self._context.free_memory)

    def read(self, pointer: int, values: NDArray[Any]) -> None:
        """Fill `values` from memory of this card, after all work on it is done."""

        def copy() -> None:
            graphs.synchronize(self._context.driver)
            self._context.driver.memcpy_dtoh(values, pointer)

        self._context.run(copy)

    def allocate(self, size: int) -> tuple[int, Callable[[], None]]:
        """Return a pointer to new memory, and a function that any thread may call to free it."""
        allocate = partial(self._context.driver.mem_alloc, size)
        block = self._context.run(allocate, undo=lambda block: block.free())
        return int(block), partial(self._context.post, block.free)

    def open_decoder(self) -> CardJpegDecoder:
        """Return a decoder of JPEGs in this card's memory; closing the card closes it."""
        decoder = CardJpegDecoder(self._context)
        self._decoders.append(decoder)
        return decoder

    def open_videos(self) -> CardVideos:
        """Return an intake of frames in this card's memory; closing the card closes it."""
        videos = CardVideos(self._context, self._index)
        self._decoders.append(videos)
        return videos

    def _fused(
        self, plan: Plan, batch: int, precision: str, algorithm: str | None = None
    ) -> Lowered:
        """Validate what was asked for and run the passes before the choice of algorithms."""
        if precision not in _PRECISIONS:
            known = " or ".join(_PRECISIONS)
            is_of_cpus = precision == "float64"
            hint = " CPUs have it: device cpu" if is_of_cpus else suggest(precision, _PRECISIONS)
            raise InputError(f"{self.name}: precision: expected {known}, got {precision!r}.{hint}")
        if batch < 1:
            raise InputError(f"{self.name}: batch: expected at least 1, got {batch}")
        target = Target(
            batch=batch,
            precision="float16" if precision == "int8" else precision,
            capability=self.card.capability,
            multiprocessors=self.card.multiprocessors,
            algorithm=algorithm,
            scales=plan.scales,
        )
        return lowering.fuse(plan, target)

    def close_programs(self) -> None:
        with ExitStack() as closing:  # all of them, also on a lost card
            for program in self._programs:
                closing.callback(program.close)

    def close(self) -> None:
        try:
            self.close_programs()
        finally:
            _close(self._decoders, self._context)


def _close(decoders: list[CardJpegDecoder | CardVideos], context: Context) -> None:
    if context.is_own_process:
        while decoders:
            with suppress(DeviceError):  # if the card is lost, closing the context reports it
                decoders[-1].close()
            decoders.pop()
    context.close()


def _by_precision(fused: Lowered) -> Iterator[Lowered]:
    """Yield the ops in the program's precision, and those that run in others instead."""
    plan, target = fused.plan, fused.target
    targets = {"int8": replace(target, precision="int8"), "float32": target.in_floats()}
    for each in dict.fromkeys((target.precision, "int8", "float32")):
        part = tuple(op for op in plan.ops if target.of(op).precision == each)
        own = target if each == target.precision else targets[each]
        if part or each != "int8":
            yield replace(fused, plan=replace(plan, ops=part), target=own)
