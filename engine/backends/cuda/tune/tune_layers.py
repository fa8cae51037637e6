"""Choose algorithms by timing each convolution once per card, and remember the choices on disk.

A convolution that was not measured yet runs by the rule of thumb. A network may have choices of its
own, see tune_network.py. Stored choices never change by themselves, so a network always runs the
same way; with a longer limit than the default, tuning continues where it stopped.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from math import inf
from time import monotonic
from typing import Any

from engine.backends.cuda import conv
from engine.backends.cuda.driver import compile_cache, compile_children, compiler, cublas, tiles
from engine.backends.cuda.driver.compiler import Source
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.worker import ClosedError
from engine.backends.cuda.kernels import sources
from engine.backends.cuda.lower.launched import units_of
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Choice, Target
from engine.backends.cuda.tune import tune_network
from engine.backends.cuda.tune.measure import alone, distinct, measure, shortlist
from engine.errors import DeviceError, InputError
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Gate

SECONDS = 10.0  # by default; the rest of a network is measured when it is compiled again
LATER_SECONDS = 25.0  # in the background, where nothing waits for them
_COMPILING = 0.6  # the share of them that compilation of kernels may take
_PATIENCE = 40.0  # seconds for that while the network already runs
_CLEARLY = 0.97  # the rule of thumb stays unless another takes less of its time than this
_LONG = 0.05  # milliseconds: layers of this length keep a card at its power limit
_NEARLY = 1.1  # times the least, in which tiles that save power are preferred there
_HOPELESS = 3.0  # times the best so far, launched alone
_LAUNCH = 0.5  # milliseconds that a launch alone may take on a busy machine

_RULES = "5"  # changes when times are measured or compared in another way

_log = logging.getLogger(__name__)


def time_limit() -> float:
    """Return how many seconds tuning may take: ENGINE_TUNE, or the default; 0 turns it off."""
    given = os.environ.get("ENGINE_TUNE", "")
    if not given:
        return SECONDS
    if not re.fullmatch(r"\d{1,6}", given, re.ASCII):
        raise InputError(f"ENGINE_TUNE: expected a number of seconds, got {given!r}")
    return float(given)


def is_waited_for() -> bool:
    """Return whether a network is tuned before it runs: if ENGINE_TUNE limits the time."""
    return bool(os.environ.get("ENGINE_TUNE"))


class Tuner:
    """An autotuner that fills `choices`: the fastest algorithm by a convolution's signature."""

    def __init__(self, context: Context, choices: dict[str, Choice]) -> None:
        self.choices = choices
        self._context = context
        self._near: dict[str, list[Choice]] = {}  # by signature: worth a try in a network
        self._networks: dict[str, tune_network.Progress] = {}
        self._temporary: set[str] = set()  # chosen before all kernels were compiled
        self._cache = compile_cache.Cache(compile_cache.folder() / "tuned")
        version = context.run(context.driver.get_driver_version)
        self._key = compile_cache.key_of([_identity(context.card.model), str(version)])
        self._load()

    def choices_for(self, fused: Lowered) -> dict[str, Choice]:
        """Return the choices of a network, or else those of its convolutions alone."""
        known = self._networks.get(_network(fused), tune_network.Progress())
        return {**self.choices, **known.choices}

    def tune_network(self, fused: Lowered, make: tune_network.Make, limit: float) -> None:
        """Time the whole network with choices nearly as fast alone, for `limit` seconds."""
        key = _network(fused)
        known = [conv.signature(fused.target, op) for op in distinct(fused)]
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

    def knows(self, fused: Lowered) -> bool:
        """Return whether each convolution was measured; stop at the first that was not.

        A first run waits for this, and the candidates of all convolutions take 0.3 s to find.
        """
        convolutions = (op for op in fused.plan.ops if isinstance(op, Conv2d))
        return not any(self._is_open(fused.target, op) for op in convolutions)

    def compile_ahead(self, fused: Lowered) -> None:
        """Compile and load what `tune` measures, without hurry: the network already runs."""
        with suppress(DeviceError):  # measuring will tell
            cublas.skcuda_cublas()
        _compile_together(self._unknown(fused), fused.target, _PATIENCE)

    def tune(
        self, fused: Lowered, limit: float, report: Callable[[str], None] = lambda text: None
    ) -> bool:
        """Measure unknown convolutions, the most expensive first, for `limit` seconds.

        Return whether there were any.
        """
        deadline, target = monotonic() + limit, fused.target
        unknown = self._unknown(fused)
        if not unknown:
            return False
        name = self._context.name
        _log.info("%s: measuring %d convolutions, once for this card", name, len(unknown))
        gate_of = gates(fused.plan)
        report(f"compiling kernels for {len(unknown)} convolutions")
        late = _compile_together(unknown, target, limit * _COMPILING)
        for number, op in enumerate(unknown, 1):
            report(f"measuring convolution {number} of {len(unknown)}")
            if monotonic() > deadline:
                _log.info("%s: the rest is measured when the network is loaded again", name)
                break
            choices = shortlist(target, op)
            ready = [
                each for each in choices[1:] if conv.get(each).tile(target.of(op), op) not in late
            ]
            signature = conv.signature(target, op)
            taken: dict[Choice, float] = {}
            time = partial(self._time, target, op, gate_of.get(op), taken)
            chosen = fastest(time, [choices[0], *ready])
            if chosen is None:
                continue
            self.choices[signature] = chosen
            self._near[signature] = tune_network.near(taken)
            if len(ready) < len(choices) - 1:
                self._temporary.add(signature)
        self._store()
        return True

    def _unknown(self, fused: Lowered) -> list[Conv2d]:
        return [op for op in distinct(fused) if self._is_open(fused.target, op)]

    def _is_open(self, target: Target, op: Conv2d) -> bool:
        return conv.signature(target, op) not in self.choices and len(shortlist(target, op)) > 1

    def _time(
        self,
        target: Target,
        op: Conv2d,
        gate: Gate | None,
        taken: dict[Choice, float],
        choice: Choice,
        give_up: float,
    ) -> float:
        """Return infinity if a candidate fails, so that the others are still measured."""
        time = partial(measure, self._context, target, op, choice, give_up, gate=gate)
        try:
            taken[choice] = self._context.run(time)
        except ClosedError:
            raise
        except DeviceError as error:
            _log.warning("%s: %s is left out: %s", self._context.name, choice, error)
            taken[choice] = inf
        return taken[choice]

    def export(self) -> dict[str, Any]:
        """Return all choices for this card, as JSON has them."""
        card = self._context.card.model
        return {"engine_tuned": _RULES, "card": card, "made_by": _identity(card), **self._known()}

    def take(self, given: Any, name: str) -> int:
        """Take over what export() returned on another machine; return the number of choices."""
        card = self._context.card.model
        if not isinstance(given, dict) or "engine_tuned" not in given:
            raise InputError(f"{name}: expected choices of algorithms, as engine tune exports them")
        if given.get("card") != card:
            raise InputError(
                f"{name}: is for {given.get('card')}, and {self._context.name} is {card}"
            )
        if given.get("made_by") != _identity(card):
            raise InputError(f"{name}: is of another version of the engine. Export it again")
        self._load()  # what other processes have stored meanwhile
        try:
            choices, near, networks = _parsed(given)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(f"{name}: is damaged. Export it again") from None
        self._temporary -= choices.keys()
        self.choices |= choices
        self._near |= near
        self._networks |= networks
        self._write()
        return len(choices)

    def _load(self) -> None:
        """Merge with what other processes have stored meanwhile.

        Their choices of convolutions win, and our progress with networks.
        """
        stored = self._cache.read(self._key)
        if stored is not None:
            choices, near, networks = _parsed(json.loads(stored))
            self.choices |= choices
            self._near |= near
            self._networks = networks | self._networks

    def _store(self) -> None:
        self._load()
        self._write()

    def _write(self) -> None:
        self._cache.write(self._key, json.dumps(self._known(), sort_keys=True).encode())

    def _known(self) -> dict[str, Any]:
        return {
            "choices": self._permanent(self.choices),
            "near": self._permanent(self._near),
            "networks": {key: vars(each) for key, each in self._networks.items()},
        }

    def _permanent(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {key: known[key] for key in known.keys() - self._temporary}


def _parsed(
    stored: Mapping[str, Any],
) -> tuple[dict[str, Choice], dict[str, list[Choice]], dict[str, tune_network.Progress]]:
    """Return choices, near choices and networks that were stored as JSON."""
    choices = {key: Choice.from_json(each) for key, each in stored["choices"].items()}
    near = {key: [*map(Choice.from_json, some)] for key, some in stored["near"].items()}
    networks = {key: tune_network.Progress.parse(each) for key, each in stored["networks"].items()}
    return choices, near, networks


def gates(plan: Plan) -> dict[Conv2d, Gate]:
    """Return the gate that reads the output of a convolution and comes next, by convolution."""
    return {
        op: gate
        for op, gate in pairwise(plan.ops)
        if isinstance(op, Conv2d) and isinstance(gate, Gate) and gate.src == op.out
    }


def _network(fused: Lowered) -> str:
    """Return a key of everything that decides which choices are best for a network."""
    facts = [
        conv.signature(fused.target, op) if isinstance(op, Conv2d) else type(op).__name__
        for op in fused.plan.ops
    ]
    return compile_cache.key_of([fused.target.precision, *facts])


def _compile_together(unknown: list[Conv2d], target: Target, limit: float) -> set[tiles.Tile]:
    """Compile all kernels that measuring needs into the cache; return tiles that are not ready.

    What is being compiled after `limit` seconds will be there the next time.
    """
    wanted: dict[tiles.Tile, Source] = {}
    others = {compiler.source(compiler.unit_of("noise"), target.capability, target.precision)}
    for op in unknown:
        for choice in shortlist(target, op):
            tile = conv.get(choice).tile(target.of(op), op)
            if tile:
                wanted[tile] = compiler.source(tile, target.capability, target.precision)
            if tile is None or choice.unfused:
                others |= _sources(alone(target, op, choice))
    ready = compile_children.compile_all({*wanted.values(), *others}, limit)
    return {tile for tile, source in wanted.items() if source not in ready}


def _sources(lowered: Lowered) -> set[Source]:
    capability = lowered.target.capability
    return {
        compiler.source(unit, capability, precision)
        for precision, units in units_of(lowered).items()
        for unit in units
    }


def fastest(time: Callable[[Choice, float], float], choices: list[Choice]) -> Choice | None:
    """Return the first choice unless another is clearly faster; None if all of them failed.

    `time` takes a choice and when to give up, and returns milliseconds.

    Measuring ends before the card is warm. In a network of long layers it reaches its power limit
    and its clock falls, and choices that take less power are faster.
    """
    best, least = choices[0], time(choices[0], inf)
    taken = {best: least}
    for each in choices[1:]:
        taken[each] = time(each, least * _HOPELESS + _LAUNCH)
        if taken[each] < least * (_CLEARLY if best == choices[0] else 1):
            best, least = each, taken[each]
    if least == inf:
        return None
    if least < _LONG:
        return best
    near = [each for each in choices if taken[each] <= least * _NEARLY]
    frugal = [each for each in near if conv.ALGORITHMS[each.algorithm].saves_power]
    return min(frugal, key=taken.__getitem__, default=best)


def _identity(card: str) -> str:
    """Return a key that changes with the card, kernels, algorithms and rules."""
    facts = [_RULES, card, *conv.ALGORITHMS, *sources.kernels().values()]
    return compile_cache.key_of(facts)
