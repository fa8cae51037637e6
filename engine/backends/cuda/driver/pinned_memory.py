"""Memory of callers that is page-locked: pictures in it travel to the card as they lie.

Elsewhere a picture is copied first, which may take longer than the fastest networks. To believe
that memory is page-locked when it is no more costs time, never bytes: the driver copies the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from functools import partial
from typing import Any
from weakref import finalize

from engine.arrays import Array
from engine.backends.cuda.driver.driver_api import DriverApi

Part = tuple[int, int, int]  # where in a block, from where in the host's memory, how many bytes


class PinnedMemory:
    """Those of one device. Arrays are known by their id until they are collected."""

    def __init__(self, calls: DriverApi, post: Callable[[Callable[[], None]], None]) -> None:
        self._calls = calls
        self._post = post
        self._known: set[int] = set()
        self._registered: set[int] = set()  # pointers; for the device's thread

    def add(self, array: Array) -> None:
        """On the device's thread: page-lock an array, for all cards, until it is collected.

        It owns its memory. What another detector has locked before stays that one's.
        """
        if id(array) in self._known:
            return
        pointer = array.__array_interface__["data"][0]
        _let_go(pointer, self._calls)  # if another array lay there, whose device is still busy
        if self._calls.is_page_locked(pointer):
            self.know(array)
            return
        self._calls.register(pointer, array.nbytes)
        self._registered.add(pointer)
        self.know(array, partial(self._lose, pointer))

    def know(self, array: Array, forgotten: Callable[[], None] = lambda: None) -> None:
        """It is page-locked by another device."""
        if id(array) in self._known:
            return
        self._known.add(id(array))
        finalize(array, self._forget, id(array), forgotten).atexit = False

    def hold(self, pictures: Sequence[Array]) -> bool:
        """Whether all of them lie whole in such arrays."""
        known = self._known
        return bool(known) and all(
            id(each if each.base is None else each.base) in known and each.flags.c_contiguous
            for each in pictures
        )

    def close(self) -> None:
        """On the device's thread."""
        self._known.clear()
        while self._registered:
            pointer = self._registered.pop()
            _gone.add(pointer)
            _let_go(pointer, self._calls)

    def _forget(self, number: int, forgotten: Callable[[], None]) -> None:
        self._known.discard(number)
        forgotten()

    def _lose(self, pointer: int) -> None:
        if pointer in self._registered:
            _gone.add(pointer)
        self._post(partial(self._unregister, pointer))

    def _unregister(self, pointer: int) -> None:
        self._registered.discard(pointer)
        _let_go(pointer, self._calls)


# Page-locked for arrays that are no more, by whichever device: other arrays may lie there by now.
_gone: set[int] = set()


def _let_go(pointer: int, calls: DriverApi) -> None:
    """If nobody has before: page-locking is one for the whole process."""
    try:
        _gone.remove(pointer)
    except KeyError:
        return
    calls.unregister(pointer)


def parts(pictures: Sequence[Array], starts: Sequence[int]) -> list[Part]:
    """What to send: neighbours that stay neighbours travel together."""
    found: list[Part] = []
    first = origin = size = 0  # of those that travel together so far
    for each, start in zip(pictures, starts, strict=True):
        pointer = _begin(each)
        if not start - first == pointer - origin == size:
            if size:
                found.append((first, origin, size))
            first, origin, size = start, pointer, 0
        size += each.nbytes
    return [*found, (first, origin, size)]


def _begin(picture: Any) -> int:
    """Where a contiguous array lies."""
    try:
        return addressof(c_char.from_buffer(picture))  # a quarter of what its interface takes
    except (TypeError, ValueError):  # it may only be read, or has nothing
        begin: int = picture.__array_interface__["data"][0]
        return begin
