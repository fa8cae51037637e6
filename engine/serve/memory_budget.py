"""A counter that bounds how many bytes are held at once."""

from __future__ import annotations

from threading import Condition, Lock


class MemoryBudget:
    """A thread-safe budget of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
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
            self._released.wait_for(lambda: self.held + count <= self.size)
            self.held += count

    def release(self, count: int) -> None:
        with self._released:
            self.held -= count
            self._released.notify()
