"""Tensor-core kernels, compiled for one tile shape at a time when it is first used."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

from engine.backends.cuda.driver.compiler import Source, activate_function
from engine.backends.cuda.kernels import sources

MODES = {"float16": 0, "tf32": 1, "float32": 2, "int8": 4}  # MODE of the kernels
EXACT_HALVES = 3  # also a MODE: float16 with weights that are sums of two halves

AnyTile = TypeVar("AnyTile", bound="Tile")
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


class Tile(ABC):
    """A kernel of kernels/conv/mma or sm90 for one tile shape: a frozen dataclass.

    A field whose type is annotated with a name, as in Annotated[int, "BM"], is a macro of its
    kernel.
    """

    kernel: str  # the name of the kernel and of its file
    mode: int

    @classmethod
    def of(cls: type[AnyTile], algorithm: Any, **others: Any) -> AnyTile:
        """Return a tile with the fields of an algorithm that have the same names, and others."""
        kind: Any = cls
        own: Any = type(algorithm)
        names = _field_names(kind) & _field_names(own)
        return cls(**{name: getattr(algorithm, name) for name in names}, **others)

    @property
    def defines(self) -> Mapping[str, int]:
        """Return the compile-time constants besides MODE."""
        found: dict[str, int] = {}
        for field, names in _macros(type(self)).items():
            value = getattr(self, field)
            values = value if isinstance(value, tuple) else (value,)
            found.update(zip(names, map(int, values), strict=True))
        return found

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the generated headers that it includes, by name."""
        return {}

    @property
    def value_bytes(self) -> int:
        return 1 if self.mode == MODES["int8"] else 2 if reads_halves(self.mode) else 4

    @property
    @abstractmethod
    def threads(self) -> int: ...

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Return the dynamic shared memory of a block."""


@lru_cache(maxsize=32)
def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind))


@lru_cache(maxsize=32)
def _macros(kind: type[Tile]) -> dict[str, tuple[str, ...]]:
    """Return the names of macros by the field that they stand for."""
    hints = get_type_hints(kind, include_extras=True)
    named = {each.name: hints[each.name] for each in fields(cast(Any, kind))}
    return {
        name: hint.__metadata__ for name, hint in named.items() if get_origin(hint) is Annotated
    }


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
        text = tile.headers[name] if name in tile.headers else known[name]
        return _INCLUDE.sub(contents, text).replace("#pragma once", "")

    heads = [f"#define {name} {value}" for name, value in tile.defines.items()]
    heads += [f"#define MODE {tile.mode}", f"#define HALVES {int(reads_halves(tile.mode))}"]
    text = known[f"{tile.kernel}.cu"]
    return "\n".join([*heads, activate_function(), _INCLUDE.sub(contents, text)])


@lru_cache(maxsize=256)
def compiled_from(tile: Tile, capability: tuple[int, int]) -> Source:
    is_fast = reads_halves(tile.mode) or tile.mode == MODES["int8"]
    defines = ("-DSTORE_HALF", "-use_fast_math") if is_fast else ()
    return Source(source(tile), defines, capability, for_nvrtc=True)
