"""Locks that survive a fork.

A forked child has none of the threads that may hold a lock. All locks made here are acquired before
a fork, so that the state they guard is consistent in the child, and are reset there. A fork also
waits while another thread imports a module, as the first call does: in the child nothing would end
the import, and a second import of the module would wait for it forever. From then until the fork
Python's own lock keeps other threads from beginning an import.
"""

from __future__ import annotations

import _imp
import logging  # noqa: F401  # registers its own lock first, and thus acquires it last
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

_PATIENCE_SECONDS = 5.0  # a signal handler may fork while its own thread holds a lock

_locks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the order in which they are acquired
_held: list[Any] = []

# Weak references to the locks of modules that are being imported, by the names of the modules.
_imports: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
_endless: set[str] = set()  # modules whose import took longer than a fork waits, such as a program


def lock(*, inner: bool = False, outer: bool = False) -> threading.Lock:
    """Return a new lock.

    `inner` locks are acquired while another of these is held, `outer` locks before any other.
    """
    made = threading.Lock()
    _locks[made] = inner - outer
    return made


def _before() -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        for each, _ in sorted(_known(), key=lambda item: item[1]):
            if each.acquire(timeout=_PATIENCE_SECONDS):
                _held.append(each)
        _imp.acquire_lock()
        imported = _imported_by_other_threads()
        if not imported:
            return
        if time.monotonic() > end:
            _endless.update(imported)
            return
        _in_parent()  # the import may need one of the locks
        time.sleep(0.001)


def _imported_by_other_threads() -> set[str]:
    """Return the names of modules whose locks others have, or are about to have (no owner yet)."""
    own = threading.get_ident()
    locks = ((name, reference()) for name, reference in _imports.copy().items())
    return {name for name, each in locks if each and each.owner != own} - _endless


def _known() -> list[tuple[Any, int]]:
    while True:
        try:
            return list(_locks.items())
        except RuntimeError:  # another thread created a lock meanwhile
            continue


def _in_parent() -> None:
    _release_imports()
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _release_imports()
    _held.clear()
    for each in list(_locks):
        each._at_fork_reinit()


def _release_imports() -> None:
    with suppress(RuntimeError):  # not held: this module was imported after _before() would run
        _imp.release_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
