"""Check keyword arguments: those that would be ignored are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import InputError, suggest


def check(
    of: Callable[..., Any],
    given: Mapping[str, Any],
    *,
    where: str,
    only: Mapping[str, Any] | None = None,
    unused: tuple[str, ...] = (),
) -> None:
    """Refuse keywords that are not parameters of `of`.

    `only` maps options to the one value supported here; `unused` lists those that cannot change
    what is returned or written.
    """
    only = only or {}
    known = [name for name in inspect.signature(of).parameters if name not in ("self", "others")]
    for name, value in given.items():
        if name in only:
            if value != only[name]:
                raise InputError(f"{name}: {where} supports only {only[name]!r}, got {value!r}")
        elif name not in (*known, *unused):
            raise InputError(f"{name}: is not an option of {where}.{suggest(name, known)}")
