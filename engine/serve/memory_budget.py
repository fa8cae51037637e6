"""A counter that bounds how many bytes are held at once."""

from __future__ import annotations

from threading import Condition, Lock


class BudgetClosedError(Exception):
    """The budget was closed while a thread waited for it."""


class MemoryBudget:
    """A thread-safe budget of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._is_closed = False
        self._released = Condition()
        self._turn = Lock()  # serves waiting threads in order, so large requests do not starve

    def try_reserve(self, count: int) -> bool:
        """Reserve `count` bytes if they are free, and return whether they were."""
        with self._released:
            if self.held + count > self.size:
                return False
            self.held += count
            return True

    def reserve(self, count: int) -> None:
        """Block until `count` bytes are free, then reserve them."""
        assert count <= self.size, "would block forever"
        with self._turn, self._released:
            self._released.wait_for(lambda: self._is_closed or self.held + count <= self.size)
            if self._is_closed:
                raise BudgetClosedError
            self.held += count

    def close(self) -> None:
        """Let every present and future reserve() raise BudgetClosedError."""
        with self._released:
            self._is_closed = True
            self._released.notify_all()

    def release(self, count: int) -> None:
        with self._released:
            self.held -= count
            self._released.notify()
