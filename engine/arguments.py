"""Validate arguments of the public API, and parse untrusted integers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from numbers import Integral, Real
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from engine.errors import InputError, suggest

if TYPE_CHECKING:
    from engine.arrays import Array

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Names that different functions and programs use for the same option.
_SYNONYMS = (
    ("threshold", "min_score", "conf", "confidence", "thresh"),
    ("nms", "iou"),
    ("size", "imgsz"),
    ("max_detections", "max_det"),
)
_MOST_DIGITS = 18  # Python refuses to parse thousands of digits


def parse_integer(text: str) -> int | None:
    """Return the number that `text` spells in ASCII digits alone, or None."""
    is_integer = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_integer else None


def is_whole(value: object, *, least: int = 1) -> TypeGuard[Integral]:
    """Return whether `value` is an integer (NumPy's included) of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole(name: str, value: object, *, most: int | None = None) -> int:
    """Return `value` as an integer of 1 or more, or raise an InputError that starts with `name`."""
    if not is_whole(value):
        raise InputError(f"{name}: expected an integer of 1 or more, got {brief(value)}")
    if most is not None and int(value) > most:
        raise InputError(f"{name}: expected at most {most}, got {brief(value)}")
    return int(value)


def fraction(name: str, value: object, *, most: float = 1) -> float:
    """Return `value` as a float from 0 to `most`, or raise an InputError."""
    hint = ""
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer beyond the range of floats
            made = float(value)
            if 0 <= made <= most:
                return made
            if 5 <= made <= 100 * most:  # probably a percentage
                hint = f". Did you mean {made / 100:g}?"
    raise InputError(f"{name}: expected a number from 0 to {most:g}, got {brief(value)}{hint}")


def as_array(name: str, value: Any) -> Array:
    """Return `value` as a NumPy array, or raise an InputError."""
    import numpy as np  # slow to import, and most arguments are not arrays

    try:
        return np.asarray(value)
    except ValueError as error:  # nested lists of unequal lengths
        raise InputError(f"{name}: expected an array, got {brief(value)}") from error


def naming_unknown(function: _Function) -> _Function:
    """Make the TypeError for an unknown keyword suggest the one that was probably meant."""
    known = inspect.signature(function).parameters.keys()

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name in named:
            if name not in known:
                same = next((each for each in _SYNONYMS if name in each), ())
                meant = next((each for each in same if each in known), None)
                hint = suggest(name, known) if meant is None else f" Did you mean {meant!r}?"
                what = f"{function.__qualname__}() got an unexpected keyword argument {name!r}."
                raise TypeError(what + hint)
        return function(*given, **named)

    return cast("_Function", call)


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise an InputError unless `value` is an instance of one of `kinds`."""
    if not isinstance(value, kinds):
        raise InputError(f"{name}: expected {expected}, got {brief(value)}")
