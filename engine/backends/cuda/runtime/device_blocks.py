"""Reusable memory on the card for decoded pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from engine.backends.cuda.driver.context import Context
from engine.concurrency import fork_safety
from engine.errors import DeviceError

_STEPS = 4  # sizes are rounded up to one of 2**_STEPS between two powers of two, to fit again
_MOST_WASTE = 2  # a block is used for pictures of at least half its size
_SHARE = 4  # decoded pictures take at most a quarter of the card's memory


class _Block(NamedTuple):
    allocation: Any
    size: int


class Lease:
    """A block in use: it is free again when nothing refers to this object any more."""

    def __init__(self, block: _Block, give: Callable[[_Block], None]) -> None:
        self.pointer = int(block.allocation)
        self._block = block
        self._give = give

    def __del__(self) -> None:
        self._give(self._block)


class DeviceBlocks:
    """Blocks of memory that any thread can lease, up to a share of the card's memory."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._most = context.card.memory // _SHARE
        self._lock = fork_safety.lock()
        self._total = 0
        self._free: list[_Block] = []  # finalizers append, at any bytecode and without a lock
        self._is_closed = False

    def lease(self, size: int) -> Lease | None:
        """Return at least `size` bytes, or None if there is no room for them."""
        with self._lock:
            free = self._free.copy()
            fitting = [each for each in free if size <= each.size <= size * _MOST_WASTE]
            if fitting:
                block = min(fitting, key=lambda each: each.size)
                self._free.remove(block)
                return Lease(block, self._take_back)
            step = 1 << max(size.bit_length() - 1 - _STEPS, 0)
            size = -(-size // step) * step
            if self._total + size > self._most:
                self._free_spare()
            if self._total + size > self._most:
                return None
            try:
                allocate = partial(self._context.driver.mem_alloc, size)
                made = self._context.run(allocate, undo=lambda block: block.free())
            except DeviceError:  # others use the memory
                self._free_spare()
                return None
            self._total += size
            return Lease(_Block(made, size), self._take_back)

    def close(self) -> None:
        """Free everything, at once or when it is given back."""
        with self._lock:
            self._is_closed = True
            self._free_spare()

    def _take_back(self, block: _Block) -> None:
        if self._is_closed:
            self._context.post(block.allocation.free)
        else:
            self._free.append(block)

    def _free_spare(self) -> None:
        while self._free:
            block = self._free.pop()
            self._context.run(block.allocation.free)
            self._total -= block.size
