"""Compiled kernels loaded into a context, ready to launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from engine.backends.cuda.driver import compiler, tiles
from engine.backends.cuda.driver.compiler import EARLY_STARTS, parameters
from engine.backends.cuda.driver.launch import Function, Module
from engine.backends.cuda.driver.tiles import Tile
from engine.concurrency.cores import usable_cores
from engine.concurrency.thread_pool import ThreadPool

_C_TYPES: dict[str, Any] = {
    "P": ctypes.c_void_p,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "f": ctypes.c_float,
    "q": ctypes.c_longlong,
    "N": ctypes.c_size_t,
}


_ALIKE = {"tf32": ("float32",)}  # precisions that share kernels


class Kernels:
    """The kernels of one precision in the context that loads them.

    A file of kernels is compiled and loaded when one of them is first launched, or ahead by
    `load`.
    """

    def __init__(
        self,
        driver: Any,
        capability: tuple[int, int],
        precision: str,
        *,
        others: Callable[[str], Kernels],
    ) -> None:
        """`others` returns the kernels that store another precision."""
        self.driver = driver
        self._others = others
        self._capability = capability
        self._precision = precision
        self._is_early = capability >= EARLY_STARTS
        self._modules: dict[str | Tile, Module] = {}  # by the file, or by the tile
        self._functions: dict[tuple[str, int], Function] = {}
        self._tiles: dict[tuple[Tile, int], Function] = {}

    def storing(self, precision: str) -> Kernels:
        """Return the kernels that store a precision: these if they do."""
        are_alike = precision in (self._precision, *_ALIKE.get(self._precision, ()))
        return self if are_alike else self._others(precision)

    def load(self, files: Iterable[str], wanted: Iterable[Tile]) -> None:
        """Compile files of kernels and tiles, on all cores at once, and load them."""
        makers: dict[str | Tile, Callable[[], bytes]] = {
            **{file: self._source(file).image for file in files},
            **{tile: partial(tiles.image, tile, self._capability) for tile in wanted},
        }
        missing = [each for each in makers if each not in self._modules]
        with closing(ThreadPool(usable_cores(), "cuda-compile")) as pool:
            images = {each: pool.submit(makers[each]) for each in missing}
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
        if (name, shared) not in self._functions:
            file = compiler.file_of(name)
            if file not in self._modules:
                self._modules[file] = Module(self._source(file).image())
            self._functions[name, shared] = self._modules[file].function(name, shared=shared)
        codes = parameters(name).values()
        assert len(codes) == len(arguments), f"{name}: {len(codes)} parameters"
        values = [_C_TYPES[code](value) for code, value in zip(codes, arguments, strict=True)]
        function = self._functions[name, shared]
        function.launch(grid, threads, values, stream=stream.handle, early=self._is_early)

    def tile(self, tile: Tile, shared: int) -> Function:
        """Return the tensor-core kernel for this tile with its dynamic shared memory."""
        if tile not in self._modules:
            self._modules[tile] = Module(tiles.image(tile, self._capability))
        if (tile, shared) not in self._tiles:
            self._tiles[tile, shared] = self._modules[tile].function(tile.kernel, shared=shared)
        return self._tiles[tile, shared]

    def close(self) -> None:
        """Unload all modules; the context must be current."""
        while self._modules:
            self._modules.popitem()[1].close()

    def _source(self, file: str) -> compiler.Source:
        return compiler.source(file, self._capability, self._precision)
