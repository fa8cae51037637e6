"""Classes that a user chose, by name or number."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.errors import InputError, suggest


def numbers_of(classes: Collection[str | int] | str, names: Sequence[str]) -> list[int]:
    """The numbers of `classes`; several classes may share a name, and one name is a choice, too."""
    numbers: list[int] = []
    for each in [classes] if isinstance(classes, str) else classes:
        if isinstance(each, str):
            numbers += _named(each, names)
        else:
            numbers.append(int(each))
    return numbers


def _named(name: str, names: Sequence[str]) -> list[int]:
    found = [number for number, each in enumerate(names) if each == name]
    if not found:
        hint = suggest(name, names)
        raise InputError(f"classes: no class is called {name!r}.{hint}")
    return found
