"""Structs that kernels take by value: fields are read from the C text and filled by name."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

from engine.backends.cuda.kernels import sources

_TYPES = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float}


class KernelArgs(ctypes.Structure):
    """The fields of a C struct in its order; every field must be given."""

    def __init__(self, **values: Any) -> None:
        names = {name for name, *_ in self._fields_}
        if names != values.keys():
            difference = ", ".join(sorted(names ^ values.keys()))
            raise TypeError(f"{type(self).__name__}: missing or unknown fields: {difference}")
        super().__init__(**values)

    @classmethod
    def of(cls, known: Mapping[str, float], **own: Any) -> KernelArgs:
        """Take from `known` what the struct has a field for, and `own` before it."""
        names = {name for name, *_ in cls._fields_}
        return cls(**{name: known[name] for name in names & known.keys()} | own)


class Divisor(KernelArgs):
    """A divisor as a factor and a shift: it divides numbers below 2^31 without a division."""

    _fields_ = (("factor", ctypes.c_uint), ("shift", ctypes.c_int))

    @classmethod
    def by(cls, divisor: int) -> Divisor:
        shift = 31 + (divisor - 1).bit_length()
        return cls(factor=-(-(1 << shift) // divisor), shift=shift)


def struct(file: str, name: str, **nested: type[KernelArgs]) -> type[KernelArgs]:
    """Return a struct of a file of kernels/, whose fields are numbers, pointers or `nested`."""
    text = re.sub("//.*", "", sources.by_name()[file])
    (body,) = re.findall(rf"^struct {name} {{(.*?)^}};", text, re.MULTILINE | re.DOTALL)
    types: dict[str, Any] = {**_TYPES, "Divisor": Divisor, **nested}
    fields: list[tuple[str, Any]] = []
    for declaration in filter(str.strip, body.split(";")):
        first, *others = map(str.strip, declaration.split(","))
        *_, kind, field = first.replace("*", "* ").split()
        made = ctypes.c_void_p if "*" in first else types[kind]
        fields += [(each, made) for each in (field, *others)]
    return type(name, (KernelArgs,), {"_fields_": fields})
