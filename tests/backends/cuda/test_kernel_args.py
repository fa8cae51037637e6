"""Arguments of kernels by name: structs are those of the C text, and no name can be wrong."""

from __future__ import annotations

import ctypes

import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.conv import implicit_gemm, kernel_args
from engine.backends.cuda.conv.kernel_args import Divisor, KernelArgs
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.kernels import sources

TEXT = """
struct Inner {
    unsigned first;
};
struct Sizes {
    const float* bias;  // of each filter; a comment may hold anything
    real *__restrict__ out;
    int height, width;  // both
    float scale;
    Inner inner;
    Divisor by_height, by_width;
};
"""


def test_every_module_is_registered() -> None:
    assert {"direct", "sm90_fused_stem"} & conv.ALGORITHMS.keys() == {"direct"}
    assert all(each.name == name for name, each in conv.ALGORITHMS.items())


def test_a_struct_is_read_from_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "by_name", lambda: {"sizes.cuh": TEXT})
    inner = kernel_args.struct("sizes.cuh", "Inner")
    assert kernel_args.struct("sizes.cuh", "Sizes", Inner=inner)._fields_ == [
        ("bias", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("height", ctypes.c_int),
        ("width", ctypes.c_int),
        ("scale", ctypes.c_float),
        ("inner", inner),
        ("by_height", Divisor),
        ("by_width", Divisor),
    ]
    assert inner._fields_ == [("first", ctypes.c_uint)]


def test_structs_of_kernels_hold_what_they_should() -> None:
    assert kernel_args.struct("fast_divide.cuh", "Divisor")._fields_ == list(Divisor._fields_)
    names = [name for name, *_ in kernel_args.Output._fields_]
    assert names[:3] == ["bias", "residual", "out"]
    assert implicit_gemm.Args._fields_[0] == ("output", kernel_args.Output)


def test_no_field_can_be_forgotten_or_misspelled() -> None:
    with pytest.raises(TypeError, match="Divisor: missing or unknown fields: shift"):
        Divisor(factor=1)
    with pytest.raises(TypeError, match="unknown fields: shifts"):
        Divisor(factor=1, shift=0, shifts=1)


def test_known_values_fill_the_fields_that_a_struct_has() -> None:
    known = {"factor": 1, "shift": 2, "width": 3}
    made = Divisor.of(known, shift=4)
    assert isinstance(made, KernelArgs)
    assert (made.factor, made.shift) == (1, 4)


def test_arguments_that_come_by_name_are_put_in_order() -> None:
    sizes = {"pixels": 3, "channels": 4, "words": 5, "src_pitch": 6}
    values = compiler.in_order("xnor_pack", {**sizes, "out": 2, "src": 1})
    assert [each.value for each in values] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(AssertionError, match="xnor_pack: missing or unknown parameters"):
        compiler.in_order("xnor_pack", sizes)
