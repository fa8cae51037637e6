"""Tensor-core kernels, compiled for one tile shape at a time when it is first used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

from engine.backends.cuda.driver.compiler import (
    activate_function,
    cached,
    compile_image,
    toolkit,
)
from engine.backends.cuda.kernels import sources

MODES = {"float16": 0, "tf32": 1, "float32": 2}  # MODE of the kernels
EXACT_HALVES = 3  # also a MODE: float16 with weights that are sums of two halves

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


class Tile(Protocol):
    """A kernel of kernels/conv/mma or sm90 for one tile shape."""

    def __hash__(self) -> int: ...

    @property
    def kernel(self) -> str:
        """Return the name of the kernel and of its file."""

    @property
    def mode(self) -> int: ...

    @property
    def defines(self) -> Mapping[str, int]:
        """Return the compile-time constants besides MODE."""

    @property
    def threads(self) -> int: ...

    @property
    def shared_bytes(self) -> int:
        """Return the dynamic shared memory of a block."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the generated headers that it includes, by name."""


def reads_halves(mode: int) -> bool:
    return mode in (MODES["float16"], EXACT_HALVES)


def source(tile: Tile) -> str:
    """Return the kernel's text for one tile with all includes expanded."""
    known = sources.by_name()
    included = set()

    def contents(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in included:
            return ""
        included.add(name)
        text = tile.headers.get(name)
        if text is None:
            text = known[name]
        return _INCLUDE.sub(contents, text).replace("#pragma once", "")

    heads = [f"#define {name} {value}" for name, value in tile.defines.items()]
    heads += [f"#define MODE {tile.mode}", f"#define HALVES {int(reads_halves(tile.mode))}"]
    text = known[f"{tile.kernel}.cu"]
    return "\n".join([*heads, activate_function(), _INCLUDE.sub(contents, text)])


@lru_cache(maxsize=256)
def image(tile: Tile, capability: tuple[int, int]) -> bytes:
    """Return the compiled tile, from the cache if possible."""
    tools = toolkit()
    defines = ("-DSTORE_HALF", "-use_fast_math") if reads_halves(tile.mode) else ()
    text = source(tile)
    facts = [text, *defines, str(capability), tools.identity]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return cached(key, lambda: compile_image(text, defines, capability, tools))
