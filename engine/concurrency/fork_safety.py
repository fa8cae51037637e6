"""Locks that survive a fork.

A forked child has none of the threads that may hold a lock. All locks made here are acquired before
a fork, so that the state they guard is consistent in the child, and are reset there.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakKeyDictionary

_PATIENCE_SECONDS = 5.0  # a signal handler may fork while its own thread holds a lock

_locks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the order in which they are acquired
_held: list[Any] = []


def lock(*, inner: bool = False, outer: bool = False) -> threading.Lock:
    """Return a new lock.

    `inner` locks are acquired while another of these is held, `outer` locks before any other.
    """
    made = threading.Lock()
    _locks[made] = inner - outer
    return made


def _before() -> None:
    for each, _ in sorted(_known(), key=lambda item: item[1]):
        if each.acquire(timeout=_PATIENCE_SECONDS):
            _held.append(each)


def _known() -> list[tuple[Any, int]]:
    while True:
        try:
            return list(_locks.items())
        except RuntimeError:  # another thread has made a lock meanwhile
            continue


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for each in list(_locks):
        each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
