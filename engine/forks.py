"""Locks that survive a fork: a child has none of the threads that may hold them.

Before a fork they are waited for, so that what they guard is whole in the child too.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakKeyDictionary

_PATIENCE_SECONDS = 5.0  # a signal's handler may fork while its own thread is inside

_locks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # and after which others it is taken
_held: list[Any] = []


def lock(*, inner: bool = False, outer: bool = False) -> threading.Lock:
    """`inner` are those that are taken while another of these is held, `outer` before any other."""
    made = threading.Lock()
    _locks[made] = inner - outer
    return made


def _before() -> None:
    for each, _ in sorted(_locks.items(), key=lambda item: item[1]):
        if each.acquire(timeout=_PATIENCE_SECONDS):
            _held.append(each)


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for each in list(_locks):
        each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
