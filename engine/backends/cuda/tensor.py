"""Tiles of the tensor-core kernels: each is compiled by itself, when it is first used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda import compiler, texts
from engine.backends.cuda.floats import is_narrow
from engine.backends.cuda.gpu import Target
from engine.plan import ops

HOPPER = (9, 0)
EIGHT = 8  # filters that a lane of a Hopper kernel finishes at once
MODES = {"float16": 0, "tf32": 1, "float32": 2}  # MODE of the kernels
EXACT_HALVES = 3  # likewise: halves whose weights are the sum of two
# what `activate_common` of kernels/common.cuh knows
COMMON = frozenset({"linear", "leaky", "relu", "mish", "swish", "logistic"})

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
# Kilobytes of shared memory that a block may have.
_SHARED = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227}
_LEAST_SHARED = 99  # of cards that are none of these


class Tile(Protocol):
    """A kernel of kernels/tensor for one shape of its blocks."""

    def __hash__(self) -> int: ...

    @property
    def kernel(self) -> str:
        """The name of the function and of its file."""

    @property
    def mode(self) -> int: ...

    @property
    def defines(self) -> Mapping[str, int]:
        """What the text is compiled with, besides MODE."""

    @property
    def shared_bytes(self) -> int:
        """What a block has of shared memory, asked for at its launch."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts that it includes and that are in no file, by name."""


def source(tile: Tile) -> str:
    """The kernel's text for one tile, everything that it includes written out."""
    known = texts.kernels()
    included = set()

    def contents(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in included:
            return ""
        included.add(name)
        text = tile.headers.get(name)
        if text is None:
            inside = f"tensor/{name}"
            text = known[inside if inside in known else name]
        return _INCLUDE.sub(contents, text).replace("#pragma once", "")

    heads = [f"#define {name} {value}" for name, value in tile.defines.items()]
    heads += [f"#define MODE {tile.mode}", f"#define HALVES {int(reads_halves(tile.mode))}"]
    text = known[f"tensor/{tile.kernel}.cu"]
    return "\n".join([*heads, compiler.activate_function(), _INCLUDE.sub(contents, text)])


@lru_cache(maxsize=256)
def image(tile: Tile, capability: tuple[int, int]) -> bytes:
    """The compiled tile, from the cache if it was ever compiled here."""
    tools = compiler.toolkit()
    defines = ("-DSTORE_HALF", "-use_fast_math") if reads_halves(tile.mode) else ()
    text = source(tile)
    facts = [text, *defines, str(capability), tools.identity]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return compiler.cached(key, lambda: compiler.compile_image(text, defines, capability, tools))


def mode_of(target: Target, op: ops.Conv2d) -> int:
    """How a convolution multiplies."""
    if target.bytes_of(op.src) == 2:
        return EXACT_HALVES if is_narrow(op) else MODES["float16"]
    return MODES["tf32" if target.precision == "tf32" else "float32"]


def reads_halves(mode: int) -> bool:
    return mode in (MODES["float16"], EXACT_HALVES)


def whole_eights(filters: int) -> int:
    """How many there are with what fills up the last eight."""
    return -(-filters // EIGHT) * EIGHT


def parts(mode: int) -> int:
    """Of a weight: high and low, where one does not hold all of it."""
    return 2 if mode in (MODES["float32"], EXACT_HALVES) else 1


def most_shared_bytes(capability: tuple[int, int]) -> int:
    """Shared memory that one block may have."""
    return _SHARED.get(capability, _LEAST_SHARED) << 10


def round_to_tf32(
    values: NDArray[np.float32], out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """To the nearest number of 10 bits after the point, ties away from zero, as cvt.rna does."""
    rounded = np.empty(values.shape, np.float32) if out is None else out
    bits = rounded.view(np.uint32)
    np.add(np.ascontiguousarray(values, np.float32).view(np.uint32), 0x1000, out=bits)
    bits &= np.uint32(0xFFFFE000)
    return rounded


def factors(values: NDArray[np.float32], mode: int) -> NDArray[np.generic]:
    """Weights as the matrix units take them; of two parts the high ones above the low ones."""
    if mode == MODES["tf32"]:
        return round_to_tf32(values)
    if reads_halves(mode):
        halves = values.astype(np.float16)
        if parts(mode) == 1:
            return halves
        return np.concatenate([halves, (values - halves).astype(np.float16)])
    both = np.empty((2 * len(values), *values.shape[1:]), np.float32)
    high, low = both[: len(values)], both[len(values) :]
    round_to_tf32(values, high)
    np.subtract(values, high, out=low)
    round_to_tf32(low, low)
    return both
