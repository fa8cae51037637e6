"""Budget: so many bytes may be held at once."""

from __future__ import annotations

from threading import Condition, Lock


class Budget:
    """Safe for many threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._changed = Condition()
        self._line = Lock()

    def take(self, count: int) -> bool:
        """Whether there was room for so many bytes; if so, they are taken."""
        with self._changed:
            if self.held + count > self.size:
                return False
            self.held += count
            return True

    def wait_for(self, count: int) -> None:
        """Take them when there is room; who comes first is served first, small or large."""
        assert count <= self.size, "would wait for ever"
        with self._line, self._changed:
            self._changed.wait_for(lambda: self.held + count <= self.size)
            self.held += count

    def give(self, count: int) -> None:
        with self._changed:
            self.held -= count
            self._changed.notify()
