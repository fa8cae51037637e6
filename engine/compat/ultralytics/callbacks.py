"""Functions that a program registers for the events of a prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from engine.errors import InputError, suggest

Callbacks: TypeAlias = "dict[str, list[Callable[[Any], object]]]"

EVENTS = (
    "on_predict_start",
    "on_predict_postprocess_end",
    "on_predict_batch_end",
    "on_predict_end",
)
_AHEAD = "on_predict_batch_start"


def none() -> Callbacks:
    """Return a dict of all events without callbacks."""
    return {event: [] for event in EVENTS}


def event_of(name: str) -> str:
    """Return the name of an event, or raise an error if the name is unknown."""
    if name in EVENTS:
        return name
    hint = suggest(name, EVENTS)
    if name == _AHEAD:
        hint = " Pictures are read ahead: use on_predict_postprocess_end"
    raise InputError(f"event: expected one of {', '.join(EVENTS)}, got {name!r}.{hint}")


def check_function(function: Any) -> None:
    """Raise if a callback cannot be called."""
    if not callable(function):
        raise InputError(f"callback: expected a function of the predictor, got {function!r}")
