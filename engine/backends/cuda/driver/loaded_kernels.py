"""Compiled kernels loaded into a context, ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from engine.backends.cuda.driver import compiler
from engine.backends.cuda.driver.compiler import EARLY_STARTS, Unit
from engine.backends.cuda.driver.launch import Function, Module
from engine.backends.cuda.driver.tiles import Tile
from engine.concurrency.cores import usable_cores
from engine.concurrency.thread_pool import ThreadPool


class Kernels:
    """The kernels of one precision in the context that loads them.

    A kernel is compiled and loaded when it is first launched, or ahead by `load_together`.
    """

    def __init__(
        self, capability: tuple[int, int], precision: str, storing: Callable[[str], Kernels]
    ) -> None:
        """`storing` returns the kernels that store a precision."""
        self.storing = storing
        self._capability = capability
        self._precision = precision
        self._is_early = capability >= EARLY_STARTS
        self._modules: dict[Unit, Module] = {}
        self._functions: dict[tuple[Unit, str, int], Function] = {}

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: int,
        shared: int = 0,
        all_shared: bool = False,
    ) -> None:
        """Enqueue a kernel with ctypes values; `shared` bytes are its dynamic shared memory."""
        self._function(compiler.unit_of(name), name, shared).launch(
            *(grid, threads, arguments),
            stream=stream,
            early=self._is_early,
            all_shared=all_shared and self._is_early,
        )

    def tile(self, tile: Tile) -> Function:
        """Return the tensor-core kernel for this tile with its dynamic shared memory."""
        return self._function(tile, tile.kernel, tile.shared_bytes)

    def close(self) -> None:
        """Unload all modules; the context must be current."""
        while self._modules:
            self._modules.popitem()[1].close()

    def is_loaded(self, unit: Unit) -> bool:
        return unit in self._modules

    def load(self, unit: Unit, image: bytes) -> None:
        """Load what `image` returned."""
        self._modules[unit] = Module(image)

    def _function(self, unit: Unit, name: str, shared: int) -> Function:
        key = unit, name, shared
        if key not in self._functions:
            if not self.is_loaded(unit):
                self.load(unit, self.image(unit))
            self._functions[key] = self._modules[unit].function(name, shared=shared)
        return self._functions[key]

    def image(self, unit: Unit) -> bytes:
        """Return a compiled unit, from the cache if possible; any thread may call this."""
        return compiler.source(unit, self._capability, self._precision).image()


def load_together(wanted: Iterable[tuple[Kernels, Unit]]) -> None:
    """Compile what is missing on all cores, the slowest first, and load it."""
    missing = [(kernels, each) for kernels, each in wanted if not kernels.is_loaded(each)]
    missing.sort(key=lambda pair: -pair[1].seconds)
    with closing(ThreadPool(usable_cores(), "cuda-compile")) as pool:
        images = [pool.submit(kernels.image, each) for kernels, each in missing]
        for (kernels, each), image in zip(missing, images, strict=True):
            kernels.load(each, image.result())
