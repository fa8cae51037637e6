"""Compiled kernels loaded into a context, ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from engine.backends.cuda.driver import compiler, tiles
from engine.backends.cuda.driver.compiler import EARLY_STARTS, parameters
from engine.backends.cuda.driver.launch import Function, Module
from engine.backends.cuda.driver.tiles import Tile
from engine.concurrency.cores import usable_cores
from engine.concurrency.thread_pool import ThreadPool

_ALIKE = {"tf32": ("float32",)}  # precisions that share kernels


class Kernels:
    """The kernels of one precision in the context that loads them.

    A file of kernels is compiled and loaded when one of them is first launched, or ahead by
    `load`.
    """

    def __init__(
        self, capability: tuple[int, int], precision: str, *, others: Callable[[str], Kernels]
    ) -> None:
        """`others` returns the kernels that store another precision."""
        self._others = others
        self._capability = capability
        self._precision = precision
        self._is_early = capability >= EARLY_STARTS
        self._modules: dict[str | Tile, Module] = {}  # by the file, or by the tile
        self._functions: dict[tuple[str | Tile, str, int], Function] = {}

    def storing(self, precision: str) -> Kernels:
        """Return the kernels that store a precision: these if they do."""
        are_alike = precision in (self._precision, *_ALIKE.get(self._precision, ()))
        return self if are_alike else self._others(precision)

    def load(self, files: Iterable[str], wanted: Iterable[Tile]) -> None:
        """Compile files of kernels and tiles, on all cores at once, and load them."""
        modules: set[str | Tile] = {*files, *wanted}
        missing = modules - self._modules.keys()
        with closing(ThreadPool(usable_cores(), "cuda-compile")) as pool:
            images = {each: pool.submit(self._image, each) for each in missing}
            for each in missing:
                self._modules[each] = Module(images[each].result())

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[float],
        *,
        stream: Any,
        shared: int = 0,
    ) -> None:
        """Enqueue a kernel; `shared` bytes are its dynamic shared memory."""
        function = self._function(compiler.file_of(name), name, shared)
        kinds = parameters(name).values()
        values = [kind(value) for kind, value in zip(kinds, arguments, strict=True)]
        function.launch(grid, threads, values, stream=stream.handle, early=self._is_early)

    def tile(self, tile: Tile, shared: int) -> Function:
        """Return the tensor-core kernel for this tile with its dynamic shared memory."""
        return self._function(tile, tile.kernel, shared)

    def close(self) -> None:
        """Unload all modules; the context must be current."""
        while self._modules:
            self._modules.popitem()[1].close()

    def _function(self, module: str | Tile, name: str, shared: int) -> Function:
        key = module, name, shared
        if key not in self._functions:
            if module not in self._modules:
                self._modules[module] = Module(self._image(module))
            self._functions[key] = self._modules[module].function(name, shared=shared)
        return self._functions[key]

    def _image(self, module: str | Tile) -> bytes:
        if isinstance(module, Tile):
            return tiles.image(module, self._capability)
        return compiler.source(module, self._capability, self._precision).image()
