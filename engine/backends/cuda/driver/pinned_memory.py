"""Pinned (page-locked) arrays of callers: the card reads pictures in them without a copy.

Other pictures are copied to a staging buffer first, which may take longer than the fastest
networks. If memory is wrongly believed to be pinned, the driver still copies correctly but slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from functools import partial
from typing import Any
from weakref import finalize

from engine.arrays import Array
from engine.backends.cuda.driver.driver_api import DriverApi

_MOST_GAP = 15  # bytes, where pictures are aligned

Part = tuple[int, int, int]  # offset in the target, address in host memory, bytes


class PinnedMemory:
    """The pinned arrays that one device knows, by their id until they are collected."""

    def __init__(self, driver_api: DriverApi, post: Callable[[Callable[[], None]], None]) -> None:
        self._driver_api = driver_api
        self._post = post
        self._known: set[int] = set()
        self._mapped: set[int] = set()  # those of the known ones that kernels can read
        self._registered: set[int] = set()  # pointers; for the device's thread

    def pin(self, array: Array) -> None:
        """Pin an array that owns its memory, for all cards, until it is collected.

        Runs on the worker thread. Memory that another detector has pinned is only copied from,
        never read in place: a copy is correct even after that detector has unpinned it.
        """
        if id(array) in self._known:
            return
        pointer = array.__array_interface__["data"][0]
        _unpin(pointer, self._driver_api)  # a collected array may have had this address
        if self._driver_api.is_page_locked(pointer):
            self.remember(array)
        else:
            self._driver_api.register(pointer, array.nbytes)
            self._registered.add(pointer)
            self.remember(array, partial(self._lose, pointer))
            if self._driver_api.is_mapped(pointer):
                self._mapped.add(id(array))

    def remember(self, array: Array, forgotten: Callable[[], None] = lambda: None) -> None:
        """Note that an array is pinned, here by default by another device or array."""
        if id(array) in self._known:
            return
        self._known.add(id(array))
        finalize(array, self._forget, id(array), forgotten).atexit = False

    def contains(self, pictures: Sequence[Array]) -> bool:
        """Return whether all pictures lie completely in known arrays."""
        known = self._known
        if not known:
            return False
        owners = {id(each if each.base is None else each.base) for each in pictures}
        return owners <= known and all(each.flags.c_contiguous for each in pictures)

    def address_of(self, picture: Array) -> int | None:
        """Return where kernels can read a picture in an array that was pinned here, if they can."""
        owner = id(picture if picture.base is None else picture.base)
        return begin_of(picture) if owner in self._mapped else None

    def close(self) -> None:
        """Unpin everything; runs on the worker thread."""
        self._known.clear()
        self._mapped.clear()
        while self._registered:
            pointer = self._registered.pop()
            _collected.add(pointer)
            _unpin(pointer, self._driver_api)

    def _forget(self, number: int, forgotten: Callable[[], None]) -> None:
        self._known.discard(number)
        self._mapped.discard(number)
        forgotten()

    def _lose(self, pointer: int) -> None:
        if pointer in self._registered:
            _collected.add(pointer)
        self._post(partial(self._unregister, pointer))

    def _unregister(self, pointer: int) -> None:
        self._registered.discard(pointer)
        _unpin(pointer, self._driver_api)


# Addresses that any device of the process pinned for arrays that have been collected since. Another
# array may already lie there.
_collected: set[int] = set()


def _unpin(pointer: int, driver_api: DriverApi) -> None:
    """Unpin the memory of a collected array, unless another device has done so."""
    try:
        _collected.remove(pointer)
    except KeyError:
        return
    driver_api.unregister(pointer)


def parts(pictures: Sequence[Array], starts: Sequence[int]) -> list[Part]:
    """Return the copies to make; adjacent pictures with adjacent targets are one copy.

    Pictures of one array may have a few bytes between them.
    """
    found: list[Part] = []
    first = origin = size = 0  # the current copy
    owner: object = None
    for each, start in zip(pictures, starts, strict=True):
        pointer = begin_of(each)
        gap = start - first - size
        most = _MOST_GAP if each.base is owner is not None else 0
        if not (start - first == pointer - origin and 0 <= gap <= most):
            if size:
                found.append((first, origin, size))
            first, origin, size, gap = start, pointer, 0, 0
        size += gap + each.nbytes
        owner = each.base
    return [*found, (first, origin, size)]


def begin_of(picture: Any) -> int:
    """Return the address of a contiguous array."""
    try:
        return addressof(c_char.from_buffer(picture))  # faster than the array interface
    except (TypeError, ValueError):  # read-only, or empty
        begin: int = picture.__array_interface__["data"][0]
        return begin
