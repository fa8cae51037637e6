"""Compiled kernels loaded into a context, ready to launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from engine.backends.cuda.driver.compiler import EARLY_STARTS, parameters
from engine.backends.cuda.driver.launch import Function, Module
from engine.backends.cuda.driver.tiles import Tile, image

_C_TYPES: dict[str, Any] = {
    "P": ctypes.c_void_p,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "f": ctypes.c_float,
    "q": ctypes.c_longlong,
    "N": ctypes.c_size_t,
}


class Kernels:
    """The functions of a compiled image, ready to launch in the context that loaded it."""

    def __init__(
        self,
        driver: Any,
        contents: bytes,
        capability: tuple[int, int],
        *,
        in_floats: Callable[[], Kernels] | None = None,
    ) -> None:
        """Load the image; `in_floats` returns the kernels that store floats, if these do not."""
        self.driver = driver
        self.in_floats = in_floats or (lambda: self)
        self._capability = capability
        self._is_early = capability >= EARLY_STARTS
        self._modules = [Module(contents)]
        self._functions: dict[tuple[str, int], Function] = {}
        self._tile_modules: dict[Tile, Module] = {}
        self._tiles: dict[tuple[Tile, int], Function] = {}

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
            self._functions[name, shared] = self._modules[0].function(name, shared=shared)
        codes = parameters(name).values()
        assert len(codes) == len(arguments), f"{name}: {len(codes)} parameters"
        values = [_C_TYPES[code](value) for code, value in zip(codes, arguments, strict=True)]
        function = self._functions[name, shared]
        function.launch(grid, threads, values, stream=stream.handle, early=self._is_early)

    def tile(self, tile: Tile, shared: int) -> Function:
        """Return the tensor-core kernel for this tile with its dynamic shared memory."""
        if tile not in self._tile_modules:
            self._modules.append(Module(image(tile, self._capability)))
            self._tile_modules[tile] = self._modules[-1]
        if (tile, shared) not in self._tiles:
            module = self._tile_modules[tile]
            self._tiles[tile, shared] = module.function(tile.kernel, shared=shared)
        return self._tiles[tile, shared]

    def close(self) -> None:
        """Unload all modules; the context must be current."""
        while self._modules:
            self._modules.pop().close()
