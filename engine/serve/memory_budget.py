"""Budgets that bound how many bytes are held at once, with a share reserved for small users."""

from __future__ import annotations

from collections import Counter
from threading import Condition, Lock


class BudgetClosedError(Exception):
    """The budget was closed while a thread waited for it."""


class BodyMemory:
    """A thread-safe budget of `size` bytes for the bodies of at most `requests` requests.

    A quarter is reserved for small bodies, so that large ones never block them. The large bodies of
    one address get at most half, so that there is room for others.
    """

    def __init__(self, size: int, requests: int) -> None:
        self.size = size
        self.held = 0
        self.largest = size - size // 2  # limit of one address when a large body grows
        self._of_large = size - size // 4  # total limit when a large body grows
        self._small = size // 4 // requests
        self._held_by: Counter[str] = Counter()  # bytes by address
        self._lock = Lock()

    def try_reserve(self, client: str, count: int, before: int = 0) -> bool:
        """Reserve `count` more bytes for a request that holds `before`, if they are free.

        `client` is the address from which the request comes.
        """
        is_small = before + count <= self._small
        with self._lock:
            if self.held + count > (self.size if is_small else self._of_large):
                return False
            if not is_small and self._held_by[client] + count > self.largest:
                return False
            self.held += count
            self._held_by[client] += count
            return True

    def release(self, client: str, count: int) -> None:
        with self._lock:
            self.held -= count
            self._held_by[client] -= count
            if not self._held_by[client]:
                del self._held_by[client]


class PictureMemory:
    """A thread-safe budget of `size` bytes for decoded pictures.

    Threads wait in order, in one queue for large pictures and one for small ones. Large ones never
    take the share of the small ones; while a large one waits, small ones stay within their share.
    `input_bytes` is what the network's input takes for any picture.
    """

    def __init__(self, size: int, input_bytes: int = 0) -> None:
        self.size = size
        self._share = min(max(size // 8, 4 * input_bytes), size // 2)
        self.largest = size - self._share  # maximum bytes of one picture
        self._held = {True: 0, False: 0}  # bytes of small and of large pictures
        self._next_large = 0  # bytes of the first waiting large picture
        self._is_closed = False
        self._changed = Condition()
        self._turns = {True: Lock(), False: Lock()}

    @property
    def held(self) -> int:
        return sum(self._held.values())

    def is_small(self, count: int) -> bool:
        return count <= self._share // 2

    def reserve(self, count: int) -> Reservation:
        """Block until `count` bytes are free, then reserve them."""
        assert count <= self.largest, "would block forever"
        is_small = self.is_small(count)
        with self._turns[is_small], self._changed:
            if not is_small:
                self._next_large = count
            try:
                self._changed.wait_for(lambda: self._is_closed or self._fits(count, is_small))
            finally:
                if not is_small:
                    self._next_large = 0
            if self._is_closed:
                raise BudgetClosedError
            self._held[is_small] += count
            self._changed.notify_all()  # small pictures may no longer have to leave room
        return Reservation(self, count, is_small)

    def close(self) -> None:
        """Make every present and future reserve() raise BudgetClosedError."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def change(self, is_small: bool, count: int) -> bool:
        """Reserve `count` more bytes if they are free, or release some if it is negative."""
        with self._changed:
            if count > 0 and not self._fits(count, is_small):
                return False
            self._held[is_small] += count
            self._changed.notify_all()
            return True

    def _fits(self, count: int, is_small: bool) -> bool:
        if self.held + count > self.size:
            return False
        limit = max(self._share, self.size - self._next_large) if is_small else self.largest
        return self._held[is_small] + count <= limit


class Reservation:
    """Bytes of a PictureMemory that one picture holds."""

    def __init__(self, memory: PictureMemory, count: int, is_small: bool) -> None:
        self._memory = memory
        self._is_small = is_small
        self.count = count

    def try_resize(self, count: int) -> bool:
        """Hold `count` bytes instead, if they are free and the picture stays small or large."""
        if count > self.count and self._memory.is_small(count) != self._is_small:
            return False
        is_done = self._memory.change(self._is_small, count - self.count)
        if is_done:
            self.count = count
        return is_done

    def release(self) -> None:
        self.try_resize(0)
