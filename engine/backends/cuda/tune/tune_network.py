"""Choose algorithms by timing the whole network.

The time of a convolution in a network depends on its neighbours: whether their blocks overlap with
its own, what they leave in the cache, and how much power they take. So whole networks are timed,
each with another choice for the convolutions of one signature, among the choices that are nearly
the fastest alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cuda.driver.worker import ClosedError
from engine.backends.cuda.ops.target import Choice
from engine.errors import DeviceError

_NEAR = 1.3  # a choice is near if alone it takes at most this many times the fastest one's time
_SPARE = 3e-4  # milliseconds that are added to this limit
_MOST_NEAR = 7
_CLEARLY = 0.997  # a choice stays unless another takes less of the network's time than this
_HOPELESS = 1.01  # not tried again
_ROUNDS = 3  # both networks run in turns, since the clock depends on the recent load
_MILLISECONDS = 20.0  # per network and round
_FEWEST, _MOST = 2, 20  # runs per network and round
MOST_PASSES = 3

_log = logging.getLogger(__name__)


class Trial(NamedTuple):
    """A network as it would run with some choices."""

    times: Callable[[int], list[float]]  # the milliseconds of each of some runs
    close: Callable[[], object]


Make = Callable[[Mapping[str, Choice]], Trial | None]  # None if memory does not suffice


@dataclass
class Progress:
    """The state of the search for one network; keys are signatures of convolutions."""

    choices: dict[str, Choice] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # not tried yet, in this order
    hopeless: dict[str, list[Choice]] = field(default_factory=dict)
    has_changed: bool = False  # in this pass
    passes: int = 0

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Progress:
        """Return what was stored as JSON."""
        choices = {key: Choice.from_json(each) for key, each in stored["choices"].items()}
        hopeless = {key: [*map(Choice.from_json, some)] for key, some in stored["hopeless"].items()}
        found = cls(**{**stored, "choices": choices, "hopeless": hopeless})
        is_list = isinstance(found.left, list) and all(isinstance(each, str) for each in found.left)
        if not (is_list and isinstance(found.has_changed, bool) and isinstance(found.passes, int)):
            raise ValueError("expected the progress of a network")
        return found


def near(milliseconds: Mapping[Choice, float]) -> list[Choice]:
    """Return the choices that are worth a try in a network, by their times alone."""
    least = min(milliseconds.values(), default=0.0)
    choices = sorted(milliseconds, key=milliseconds.__getitem__)
    kept = [each for each in choices if milliseconds[each] <= least * _NEAR + _SPARE]
    return [each for each in kept if isfinite(milliseconds[each])][:_MOST_NEAR]


def tune_network(
    progress: Progress, near: Mapping[str, Sequence[Choice]], make: Make, deadline: float
) -> None:
    """Try the choices of each signature that is left, until `deadline`.

    A change may make rejected choices good ones: passes follow until one changes nothing.
    """
    best = make(progress.choices)
    if best is None:
        return
    try:
        while progress.left:
            signature = progress.left[0]
            hopeless = progress.hopeless.setdefault(signature, [])
            for choice in near[signature]:
                if choice in (progress.choices.get(signature), *hopeless):
                    continue
                if monotonic() > deadline:
                    return
                choices = {**progress.choices, signature: choice}
                trial = make(choices)
                if trial is None:
                    continue
                try:
                    share = _share(trial, best)
                    if share < _CLEARLY:
                        best, trial = trial, best
                        progress.choices, progress.has_changed = choices, True
                    elif share > _HOPELESS:
                        hopeless.append(choice)
                finally:
                    trial.close()
            del progress.left[0]
            if not progress.left:
                progress.passes += 1
                if progress.has_changed and progress.passes < MOST_PASSES:
                    progress.left, progress.has_changed = list(near), False
    finally:
        best.close()


def _share(trial: Trial, best: Trial) -> float:
    """Return the time of a trial relative to the best; one round suffices if it is slower.

    Return infinity if the trial fails, so tuning goes on.
    """
    (first,) = best.times(1)
    runs = int(min(max(_MILLISECONDS / max(first, 1e-3), _FEWEST), _MOST))
    taken: list[float] = []
    least: list[float] = []
    for _ in range(_ROUNDS):
        least += best.times(runs)
        try:
            taken += trial.times(runs)
        except ClosedError:
            raise
        except DeviceError as error:
            _log.warning("a network with other algorithms is left out: %s", error)
            return inf
        share = float(np.median(taken) / np.median(least))
        if share > 1:
            break
    return share
