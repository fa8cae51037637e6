"""Classes that a user chose, by name or number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from reprlib import repr as brief

from engine.errors import InputError, suggest
from engine.numerals import whole_number
from engine.vision.naming import shown


def numbers_of(classes: Collection[str | int] | str | None, names: Sequence[str]) -> list[int]:
    """The numbers of `classes`; several classes may share a name, and one name is a choice, too.

    None chooses nothing.
    """
    if classes is None:
        return []
    if isinstance(classes, bytes) or not isinstance(classes, Iterable):
        raise InputError(f"classes: expected a list of names or numbers, got {brief(classes)}")
    numbers: list[int] = []
    for each in [classes] if isinstance(classes, str) else classes:
        if isinstance(each, str):
            numbers += _named(each, names)
        elif isinstance(each, Integral) and not isinstance(each, bool):
            numbers.append(int(each))
        else:
            raise InputError(f"classes: expected names or numbers, got {brief(each)}")
    return numbers


def known_as(text: str) -> str | int:
    """What a user wrote: a number, or else a name."""
    number = whole_number(text)
    return text if number is None else number


def _named(name: str, names: Sequence[str]) -> list[int]:
    found = [number for number, each in enumerate(names) if each == name]
    if not found:
        hint = suggest(name, names)
        raise InputError(f"classes: no class is called {shown(name)!r}.{hint}")
    return found
