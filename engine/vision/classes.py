"""Resolve the classes that a user selects by name or number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from reprlib import repr as brief

from engine.arguments import parse_integer
from engine.errors import InputError, suggest
from engine.files.naming import shown


class TypedClass(str):
    """A class as users type it: a name, or a class number if no class has that name."""

    __slots__ = ()

    def resolved(self, names: Sequence[str]) -> str | int:
        number = None if self in names else parse_integer(self)
        return str(self) if number is None else number


def class_ids_of(
    classes: Collection[str | int] | str | None, names: Sequence[str], *, what: str = "classes"
) -> list[int]:
    """Return the ids of `classes`: a list of names and numbers, or a single name.

    A name that several classes share selects all of them. None selects no class. Errors begin with
    `what`.
    """
    if classes is None:
        return []
    if isinstance(classes, bytes) or not isinstance(classes, Iterable):
        raise InputError(f"{what}: expected a list of names or numbers, got {brief(classes)}")
    ids: list[int] = []
    for each in [classes] if isinstance(classes, str) else classes:
        if isinstance(each, TypedClass):
            each = each.resolved(names)
        if isinstance(each, str):
            ids += _ids_of_name(each, names, what)
        elif isinstance(each, Integral) and not isinstance(each, bool):
            ids.append(int(each))
        else:
            raise InputError(f"{what}: expected names or numbers, got {brief(each)}")
    return ids


def chosen_classes(
    classes: Collection[str | int] | None,
    exclude: Collection[str | int] | None,
    names: Sequence[str],
) -> tuple[int, ...] | None:
    """Return the ids of `classes` without those to `exclude`, or None for all classes."""
    unwanted = set(class_ids_of(exclude, names))
    if classes is None and not unwanted:
        return None
    every = range(len(names))
    wanted = set(every if classes is None else class_ids_of(classes, names))
    for number in sorted((wanted | unwanted) - set(every)):
        raise InputError(f"classes: expected a number below {len(names)}, got {number}")
    return tuple(sorted(wanted - unwanted))


def _ids_of_name(name: str, names: Sequence[str], what: str) -> list[int]:
    found = [class_id for class_id, each in enumerate(names) if each == name]
    if not found:
        hint = suggest(name, names)
        raise InputError(f"{what}: no class is called {shown(name)!r}.{hint}")
    return found
