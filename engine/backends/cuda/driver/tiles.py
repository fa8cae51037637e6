"""Tensor-core kernels, of which each tile shape is a unit of compilation."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

from engine.backends.cuda.driver.compiler import Unit, activate_function
from engine.backends.cuda.kernels import sources

MODES = {"float16": 0, "tf32": 1, "float32": 2, "int8": 4}  # MODE of the kernels
EXACT_HALVES = 3  # also a MODE: float16 with weights that are sums of two halves

AnyTile = TypeVar("AnyTile", bound="Tile")
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


class Tile(Unit):
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
    def seconds(self) -> float:
        return 0.5 if getattr(self, "yolo", 0) else 0.3

    def options(self, precision: str) -> tuple[str, ...]:
        is_fast = reads_halves(self.mode) or self.mode == MODES["int8"]
        return ("-DSTORE_HALF", "-use_fast_math") if is_fast else ()

    def text(self) -> str:
        """Return the kernel for this shape, with all includes expanded."""
        known = sources.by_name()
        included = set()

        def contents(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in included:
                return ""
            included.add(name)
            text = self.headers[name] if name in self.headers else known[name]
            return _INCLUDE.sub(contents, text).replace("#pragma once", "")

        heads = [f"#define {name} {value}" for name, value in self.defines.items()]
        heads += [f"#define MODE {self.mode}", f"#define HALVES {int(reads_halves(self.mode))}"]
        text = known[f"{self.kernel}.cu"]
        return "\n".join([*heads, activate_function(), _INCLUDE.sub(contents, text)])

    @property
    def defines(self) -> Mapping[str, int]:
        """Return the compile-time constants except MODE."""
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
