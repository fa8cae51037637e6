"""Arguments, of which Python lets anyone pass anything: made what they stand for, or refused."""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Integral, Real
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, TypeGuard

from engine.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_whole(value: object, *, least: int = 1) -> TypeGuard[Integral]:
    """Whether it is an integer, of NumPy perhaps, of `least` or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole(name: str, value: object, *, most: int | None = None) -> int:
    if not is_whole(value):
        raise InputError(f"{name}: expected an integer of 1 or more, got {brief(value)}")
    if most is not None and int(value) > most:
        raise InputError(f"{name}: expected at most {most}, got {brief(value)}")
    return int(value)


def number(name: str, value: object) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer beyond all floats
            made = float(value)
            if 0 <= made < math.inf:
                return made
    raise InputError(f"{name}: expected a number of 0 or more, got {brief(value)}")


def as_array(name: str, value: Any) -> NDArray[Any]:
    import numpy as np  # takes long, and most arguments are none

    try:
        return np.asarray(value)
    except ValueError as error:  # lists of several lengths
        raise InputError(f"{name}: expected an array, got {brief(value)}") from error


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kinds):
        raise InputError(f"{name}: expected {expected}, got {brief(value)}")
