"""Measures which algorithm runs each convolution fastest on a card, once, and remembers it on disk.

Until a convolution was measured, the rule of thumb serves. A network as a whole may have choices of
its own, see settle.py. What is stored never changes by itself, so a network runs the same way every
time; who gives more than the usual time lets it go on where it was.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from math import inf, prod
from time import monotonic
from typing import Any

import numpy as np

from engine.backends.cuda import conv
from engine.backends.cuda.driver import compile_cache, graphs, tiles
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.kernels import sources
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.memory_layout import align, lay_out_memory
from engine.backends.cuda.lower.squeeze_excite import partial_sums
from engine.backends.cuda.ops.border import fill_with_noise
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import Annotations, Gpu, Place
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.tune import tune_network
from engine.errors import DeviceError, InputError
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Gate

SECONDS = 10.0  # then the rest of a network waits for the next time it is compiled
COMPILING = 0.6  # the share of them that may go into compiling what is to be measured
COPIES = 10  # in one graph, each with weights of its own: in a network these come from far, too
REPEATS = 5
VARIANTS = 9  # of the families that their estimates rank well
FEW_VARIANTS = 2  # of the others
_ALIKE = 2  # that do the same work
PLAIN = frozenset({"direct", "tiled"})
_NOISE_BYTES = 1 << 30  # at a time
_CLEARLY = 0.97  # the rule of thumb stays unless another takes less of its time than this
_LONG = 0.05  # milliseconds: layers of this length keep a card at its most power
_NEARLY = 1.1  # times the least, in which tiles that save power are preferred there
_HOPELESS = 3.0  # times the best so far, launched alone
_LAUNCH = 0.5  # milliseconds that a launch alone may take: a busy machine is slow to send it

_RULES = "5"  # another one where times are measured or compared otherwise than before

_log = logging.getLogger(__name__)


def time_limit() -> float:
    """How long measuring may take; ENGINE_TUNE says otherwise, 0 is not at all."""
    given = os.environ.get("ENGINE_TUNE", "")
    if not given:
        return SECONDS
    if not re.fullmatch(r"\d{1,6}", given, re.ASCII):
        raise InputError(f"ENGINE_TUNE: expected a number of seconds, got {given!r}")
    return float(given)


class Tuner:
    """Fills `choices`, the choices of algorithms by the signature of the convolution."""

    def __init__(self, context: Context, choices: dict[str, Choice]) -> None:
        self.choices = choices
        self._context = context
        self._near: dict[str, list[Choice]] = {}  # by signature: those worth a try in a network
        self._networks: dict[str, tune_network.Progress] = {}
        self._passing: set[str] = set()  # chosen while some kernels were still being compiled
        self._cache = compile_cache.Cache(compile_cache.folder() / "tuned")
        self._key = _identity(context)
        self._load()

    def choices_for(self, plan: Plan, target: Target) -> dict[str, Choice]:
        """Those of a network, where it has some, before those of its convolutions alone."""
        known = self._networks.get(_network(plan, target), tune_network.Progress())
        return {**self.choices, **known.choices}

    def tune_network(
        self, plan: Plan, target: Target, make: tune_network.Make, limit: float
    ) -> None:
        """Time the network as a whole with what is nearly as fast alone, for `limit` seconds."""
        key = _network(plan, target)
        known = [conv.signature(target, op) for op in _distinct(plan, target)]
        near = {each: self._near[each] for each in known if len(self._near.get(each, ())) > 1}
        progress = self._networks.get(key)
        if progress is None:
            choices = {each: self.choices[each] for each in known if each in self.choices}
            progress = tune_network.Progress(choices, list(near))
        progress.left = [each for each in progress.left if each in near]
        if not progress.left:
            return
        name = self._context.name
        _log.info("%s: timing the network as a whole with what was nearly as fast", name)
        tune_network.tune_network(progress, near, make, monotonic() + limit)
        self._networks[key] = progress
        self._store()

    def tune(self, plan: Plan, target: Target, limit: float) -> bool:
        """Measure what is not known yet of `plan`, the heaviest first, for `limit` seconds.

        Whether there was any.
        """
        deadline = monotonic() + limit
        unknown = [op for op in _distinct(plan, target) if self._is_open(target, op)]
        if not unknown:
            return False
        name = self._context.name
        _log.info("%s: measuring %d convolutions, once for this card", name, len(unknown))
        gate_of = gates(plan)
        late = _compile_together(unknown, target, limit * COMPILING)
        for op in unknown:
            if monotonic() > deadline:
                _log.info("%s: the rest is measured when the network is loaded again", name)
                break
            names = shortlist(target, op)
            ready = [name for name in names[1:] if conv.tile(target, op, name) not in late]
            signature = conv.signature(target, op)
            taken: dict[Choice, float] = {}
            time = partial(self._time, target, op, gate_of.get(op), taken)
            chosen = fastest(time, [names[0], *ready])
            if chosen is None:
                continue
            self.choices[signature] = chosen
            self._near[signature] = tune_network.near(taken)
            if len(ready) < len(names) - 1:
                self._passing.add(signature)
        self._store()
        return True

    def _is_open(self, target: Target, op: Conv2d) -> bool:
        return conv.signature(target, op) not in self.choices and len(shortlist(target, op)) > 1

    def _time(
        self,
        target: Target,
        op: Conv2d,
        gate: Gate | None,
        taken: dict[Choice, float],
        name: Choice,
        give_up: float,
    ) -> float:
        """Infinite where the card refuses: who cannot run is not to keep others from it."""
        time = partial(measure, self._context, target, op, name, give_up, gate=gate)
        try:
            taken[name] = self._context.run(time)
        except DeviceError as error:
            _log.warning("%s: %s is left out: %s", self._context.name, name, error)
            taken[name] = inf
        return taken[name]

    def _load(self) -> None:
        stored = self._cache.read(self._key)
        if stored is None:
            return
        known = json.loads(stored)
        self.choices.update({key: Choice(*each) for key, each in known["choices"].items()})
        near = known["near"].items()
        self._near.update({key: [Choice(*each) for each in choices] for key, choices in near})
        networks = {
            key: tune_network.Progress.parse(each) for key, each in known["networks"].items()
        }
        self._networks = networks | self._networks

    def _store(self) -> None:
        """Together with what other processes have stored in the meantime.

        Theirs stays, but of networks, of which this one may have come further.
        """
        self._load()
        known = {
            "choices": self._lasting(self.choices),
            "near": self._lasting(self._near),
            "networks": {key: vars(each) for key, each in self._networks.items()},
        }
        self._cache.write(self._key, json.dumps(known, sort_keys=True).encode())

    def _lasting(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {key: known[key] for key in known.keys() - self._passing}


def gates(plan: Plan) -> dict[Conv2d, Gate]:
    """Return the gate that reads the output of a convolution and comes next, by convolution."""
    return {
        op: gate
        for op, gate in pairwise(plan.ops)
        if isinstance(op, Conv2d) and isinstance(gate, Gate) and gate.src == op.out
    }


def _network(plan: Plan, target: Target) -> str:
    """Changes with whatever may change which choices suit a network best."""
    facts = [
        conv.signature(target, op) if isinstance(op, Conv2d) else type(op).__name__
        for op in plan.ops
    ]
    return hashlib.sha256("\0".join([target.precision, *facts]).encode()).hexdigest()


# ---------------------------------------------------------------- what is tried


def _distinct(plan: Plan, target: Target) -> list[Conv2d]:
    """A convolution of each signature, by the time that each of them takes in all."""
    alike: dict[str, list[Conv2d]] = {}
    for op in plan.ops:
        if isinstance(op, Conv2d):
            alike.setdefault(conv.signature(target, op), []).append(op)
    groups = sorted(alike.values(), key=lambda group: -len(group) * _products(target, group[0]))
    return [group[0] if len(group) == 1 else _most_able(group, target) for group in groups]


def _most_able(group: list[Conv2d], target: Target) -> Conv2d:
    """Of equal ones, that whose place in memory suits most algorithms speaks for all."""
    return max(group, key=lambda op: len(conv.candidates(target, op)))


def _products(target: Target, op: Conv2d) -> int:
    window = op.weight.shape[1] * op.weight.shape[2] * op.weight.shape[3]
    return target.rows(op.out) * op.out.shape.size * window


def shortlist(target: Target, op: Conv2d) -> list[Choice]:
    """The rule of thumb, of each family of variants those that promise most, then the single ones.

    Plain loops are hopeless beside a matrix unit and slow to measure: they are tried without one.
    """
    able = conv.candidates(target, op)
    estimates = {each: conv.estimate(target, op, each) for each in able}
    variants: dict[Choice, float] = {
        each: cycles for each, cycles in estimates.items() if cycles is not None
    }
    families: dict[tuple[str, bool], list[Choice]] = {}
    for each in sorted(variants, key=variants.__getitem__):
        families.setdefault(conv.family(each), []).append(each)
    promising = [
        each for choices in families.values() for each in _unlike(choices)[: _quota(choices[0])]
    ]
    single = [each for each in able if each not in variants]
    if promising:
        single = [each for each in single if each.algorithm not in PLAIN]
    return list(dict.fromkeys([conv.rule_of_thumb(target, op), *promising, *single]))


def _unlike(choices: list[Choice]) -> list[Choice]:
    """No more than a few that differ in nothing but the room that they take."""
    seen: Counter[object] = Counter()
    found = []
    for choice in choices:
        work = conv.ALGORITHMS[choice.algorithm].work
        seen[work] += 1
        if seen[work] <= _ALIKE:
            found.append(choice)
    return found


def _quota(choice: Choice) -> int:
    return VARIANTS if conv.ALGORITHMS[choice.algorithm].large else FEW_VARIANTS


def _compile_together(unknown: list[Conv2d], target: Target, limit: float) -> set[tiles.Tile]:
    """Compile the kernels that are compiled one by one, on all cores, into the cache.

    Returns those that are not ready in `limit` seconds: what is under way then is for next time.
    """
    wanted = {conv.tile(target, op, name) for op in unknown for name in shortlist(target, op)}
    pool = ThreadPoolExecutor(os.cpu_count())
    made = {pool.submit(tiles.image, tile, target.capability): tile for tile in wanted if tile}
    wait(made, timeout=limit)
    pool.shutdown(wait=False, cancel_futures=True)
    return {tile for future, tile in made.items() if not future.done() or future.cancelled()}


def fastest(time: Callable[[Choice, float], float], names: list[Choice]) -> Choice | None:
    """The first of `names` unless another is clearly faster; None where none could be timed.

    time(name, give up) is in milliseconds.

    What is measured is over before the card is warm. Where a network of long layers makes it draw
    all the power that it may, its clock falls, and those that take less power are faster.
    """
    best, least = names[0], time(names[0], inf)
    taken = {best: least}
    for name in names[1:]:
        taken[name] = time(name, least * _HOPELESS + _LAUNCH)
        if taken[name] < least * (_CLEARLY if best == names[0] else 1):
            best, least = name, taken[name]
    if least == inf:
        return None
    if least < _LONG:
        return best
    near = [name for name in names if taken[name] <= least * _NEARLY]
    wide = [name for name in near if conv.ALGORITHMS[name.algorithm].saves_power]
    return min(wide, key=taken.__getitem__, default=best)


# ---------------------------------------------------------------- the device's thread


def measure(
    context: Context,
    target: Target,
    op: Conv2d,
    name: Choice,
    give_up: float,
    gate: Gate | None = None,
) -> float:
    """Milliseconds of one run; infinite where memory is short.

    It leaves its sums for the gate, if it can. A run that alone takes longer than `give_up` is not
    repeated.
    """
    driver, stream = context.driver, context.stream
    sums = partial_sums(target, op, name, gate) if gate else None
    step = Step(op, name, Annotations(partial_sums=sums))
    layout = lay_out_memory(Lowered(Plan(op.src, (op,), (), ()), target, (step,))).layout
    offsets, counters, weights = _weights(target, op, name)
    squeeze = align(4 * prod(gate.squeeze.shape)) if gate else 0
    size = layout.size + COPIES * weights + layout.workspace + squeeze
    if size > driver.mem_get_info()[0] // 2:
        return inf
    block = driver.mem_alloc(size)
    try:
        start = int(block)
        first = start + layout.size
        places = {
            tensor: Place(start + each.offset, each.pitch) for tensor, each in layout.slices.items()
        }
        gpus = [
            Gpu(
                target,
                kernels=context.kernels(target.precision),
                blas=context.blas,
                stream=stream,
                places=places,
                arrays={
                    **{key: first + copy * weights + at for key, at in offsets.items()},
                    **({(gate, "squeeze"): start + size - squeeze} if gate else {}),
                },
                workspace=first + COPIES * weights,
                candidates=None,
                sequences=target.batch,
                annotations=step.annotations,
            )
            for copy in range(COPIES)
        ]
        for offset in range(0, size, _NOISE_BYTES):  # zeros take less power, and so less time
            fill_with_noise(gpus[0], start + offset, min(_NOISE_BYTES, size - offset))
        for gpu in gpus:
            for field, bytes_ in counters.items():
                gpu.zero(gpu.array(op, field), bytes_)
        context.blas.allow_tf32(target.precision == "tf32")
        conv.enqueue(gpus[0], op, name)  # loads what is loaded late
        stream.synchronize()
        alone = _timed(context, lambda: conv.enqueue(gpus[0], op, name))
        if alone > give_up:
            return alone

        def enqueue_all() -> None:
            for gpu in gpus:
                conv.enqueue(gpu, op, name)

        recorded = graphs.record(stream.handle, enqueue_all)
        try:
            recorded.launch()
            times = [_timed(context, recorded.launch) for _ in range(REPEATS)]
            return float(np.median(times)) / COPIES
        finally:
            stream.synchronize()
            recorded.close()
    finally:
        stream.synchronize()
        block.free()


def _weights(
    target: Target, op: Conv2d, name: Choice
) -> tuple[dict[tuple[Any, str], int], dict[str, int], int]:
    """Where each prepared array lies in a copy of the weights, and the size of a copy.

    Between them the bytes of those that count something, which must begin at zero.
    """
    constants = {"weight": op.weight} if op.bias is None else {"weight": op.weight, "bias": op.bias}
    zeros = {
        field: np.broadcast_to(np.float32(0), constant.shape)
        for field, constant in constants.items()
    }
    offsets: dict[tuple[Any, str], int] = {}
    counters: dict[str, int] = {}
    size = 0
    for field, values in conv.prepare(target, op, name, zeros).items():
        offsets[op, field] = size
        size += align(values.nbytes)
        if values.dtype == np.int32:
            counters[field] = values.nbytes
    return offsets, counters, size


def _timed(context: Context, enqueue: Callable[[], None]) -> float:
    start, end = context.driver.Event(), context.driver.Event()
    start.record(context.stream)
    enqueue()
    end.record(context.stream)
    end.synchronize()
    return float(end.time_since(start))


# ---------------------------------------------------------------- what a choice depends on


def _identity(context: Context) -> str:
    """Changes with the card, the driver, the kernels and algorithms there are, and the rules."""
    version = context.run(context.driver.get_driver_version)
    facts = [
        _RULES,
        context.card.model,
        str(version),
        *conv.ALGORITHMS,
        *sources.kernels().values(),
    ]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()
