"""Settles with which algorithms a network as a whole is fastest, of those that nearly are so alone.

What a convolution takes in a network depends on its neighbours: whether their blocks find room
beside its own, what they leave in the cache, and how much of the power. So whole networks are
timed, in turns, each with another algorithm for the convolutions of one signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import median
from time import monotonic
from typing import Any, Protocol

from engine.backends.cuda.ops.choice import Choice
from engine.errors import DeviceError

_NEAR = 1.3  # times the least alone
_SPARE = 3e-4  # milliseconds besides
_MOST_NEAR = 7
_CLEARLY = 0.997  # what runs stays unless another network takes less of its time than this
_HOPELESS = 1.01  # not tried again
_ROUNDS = 3  # in which both are timed, since a card's clock follows what it has just done
_MILLISECONDS = 20.0  # of one of them in a round
_FEWEST, _MOST = 2, 20  # runs of a round
MOST_PASSES = 3

_log = logging.getLogger(__name__)


class Trial(Protocol):
    """A network as it would run with some choices."""

    def times(self, runs: int) -> list[float]:
        """Milliseconds of each of so many runs."""
        ...

    def close(self) -> None: ...


Make = Callable[[Mapping[str, Choice]], Trial | None]  # None where memory is short


@dataclass
class Progress:
    """What is known of a network, by signatures of convolutions."""

    choices: dict[str, Choice] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # in the order in which they will be tried
    hopeless: dict[str, list[Choice]] = field(default_factory=dict)
    has_changed: bool = False  # in this pass
    passes: int = 0

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Progress:
        """Return what was stored as JSON."""
        choices = {key: Choice(*each) for key, each in stored["choices"].items()}
        hopeless = {
            key: [Choice(*each) for each in choices] for key, choices in stored["hopeless"].items()
        }
        return cls(**{**stored, "choices": choices, "hopeless": hopeless})


def near(milliseconds: Mapping[Choice, float]) -> list[Choice]:
    """The algorithms that are worth a try in a network, by what they took alone."""
    least = min(milliseconds.values(), default=0.0)
    names = sorted(milliseconds, key=milliseconds.__getitem__)
    kept = [name for name in names if milliseconds[name] <= least * _NEAR + _SPARE]
    return [name for name in kept if isfinite(milliseconds[name])][:_MOST_NEAR]


def tune_network(
    progress: Progress, near: Mapping[str, Sequence[Choice]], make: Make, deadline: float
) -> None:
    """Try what is left, each signature's algorithms one by one, until `deadline`.

    A change may make others worth another try: passes follow until one of them changes nothing.
    """
    best = make(progress.choices)
    if best is None:
        return
    try:
        while progress.left:
            signature = progress.left[0]
            for name in near[signature]:
                hopeless = progress.hopeless.setdefault(signature, [])
                if name in (progress.choices.get(signature), *hopeless):
                    continue
                if monotonic() > deadline:
                    return
                choices = {**progress.choices, signature: name}
                trial = make(choices)
                if trial is None:
                    continue
                try:
                    share = _share(trial, best)
                    if share < _CLEARLY:
                        best, trial = trial, best
                        progress.choices, progress.has_changed = choices, True
                    elif share > _HOPELESS:
                        hopeless.append(name)
                finally:
                    trial.close()
            del progress.left[0]
            if not progress.left:
                _begin_again(progress, near)
    finally:
        best.close()


def _begin_again(progress: Progress, near: Mapping[str, Sequence[Choice]]) -> None:
    progress.passes += 1
    if progress.has_changed and progress.passes < MOST_PASSES:
        progress.left, progress.has_changed = list(near), False


def _share(trial: Trial, best: Trial) -> float:
    """Of the time of the best that the other takes; more than one is found out in one round.

    Infinite where the card refuses: who cannot run is not to keep the network from it.
    """
    (first,) = best.times(1)
    runs = int(min(max(_MILLISECONDS / max(first, 1e-3), _FEWEST), _MOST))
    taken: list[float] = []
    least: list[float] = []
    for _ in range(_ROUNDS):
        least += best.times(runs)
        try:
            taken += trial.times(runs)
        except DeviceError as error:
            _log.warning("a network with other algorithms is left out: %s", error)
            return inf
        share = median(taken) / median(least)
        if share > 1:
            break
    return share
