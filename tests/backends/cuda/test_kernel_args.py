"""Arguments of kernels by name: structs agree with those in C, and names are those of the text."""

from __future__ import annotations

import ctypes
import re

import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.conv.kernel_args import Divisor, KernelArgs
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.kernels import sources

TYPES = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "float": ctypes.c_float}


def fields_in_c(text: str, name: str) -> list[tuple[str, object]]:
    (body,) = re.findall(rf"^struct {name} {{(.*?)^}};", text, re.MULTILINE | re.DOTALL)
    found = []
    for declaration in re.sub("//.*", "", body).split(";"):
        first, *others = map(str.strip, declaration.split(","))
        if first:
            *_, kind, name = first.replace("*", "* ").split()
            known = {each.__name__: each for each in KernelArgs.__subclasses__()}
            made = ctypes.c_void_p if "*" in first else {**known, **TYPES}[kind]
            found += [(each, made) for each in (name, *others)]
    return found


def test_every_module_is_registered() -> None:
    assert {"direct", "sm90_fused_stem"} & conv.ALGORITHMS.keys() == {"direct"}
    assert all(each.name == name for name, each in conv.ALGORITHMS.items())


@pytest.mark.parametrize("args", KernelArgs.__subclasses__(), ids=lambda each: each.__module__)
def test_structs_have_the_fields_of_those_in_c(args: type[KernelArgs]) -> None:
    file, name = args.struct
    assert list(args._fields_) == fields_in_c(sources.by_name()[file], name)


def test_no_field_can_be_forgotten_or_misspelled() -> None:
    with pytest.raises(TypeError, match="Divisor: missing or unknown fields: shift"):
        Divisor(factor=1)
    with pytest.raises(TypeError, match="unknown fields: shifts"):
        Divisor(factor=1, shift=0, shifts=1)


def test_arguments_that_come_by_name_are_put_in_order() -> None:
    sizes = {"pixels": 3, "channels": 4, "words": 5, "src_pitch": 6}
    assert compiler.in_order("xnor_pack", {**sizes, "out": 2, "src": 1}) == [1, 2, 3, 4, 5, 6]
    assert compiler.in_order("xnor_pack", (1, 2)) == (1, 2)
    with pytest.raises(AssertionError, match="xnor_pack: missing or unknown parameters"):
        compiler.in_order("xnor_pack", sizes)
