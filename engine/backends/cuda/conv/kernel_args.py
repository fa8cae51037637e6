"""The structs that kernels of convolutions take, and what the host computes for several of them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv.algorithm import adds_quarters
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.kernels import sources
from engine.backends.cuda.ops.arguments import KINDS
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.plan import ops


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
        """Return a struct of `own` and of those values of `known` for which it has fields."""
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
    """Return a struct of a file in kernels/, whose fields are numbers, pointers or `nested`."""
    text = re.sub("//.*", "", sources.by_name()[file])
    (body,) = re.findall(rf"^struct {name} {{(.*?)^}};", text, re.MULTILINE | re.DOTALL)
    types: dict[str, Any] = {**compiler.C_TYPES, "Divisor": Divisor, **nested}
    fields: list[tuple[str, Any]] = []
    for declaration in filter(str.strip, body.split(";")):
        first, *others = map(str.strip, declaration.split(","))
        *_, kind, field = first.replace("*", "* ").split()
        made = ctypes.c_void_p if "*" in first else types[kind]
        fields += [(each, made) for each in (field, *others)]
    return type(name, (KernelArgs,), {"_fields_": fields})


def depth(op: ops.Conv2d) -> int:
    """Return the values in a window: the channels of a group times the size of the kernel."""
    return op.weight.shape[1] * op.weight.shape[2] * op.weight.shape[3]


def filters_of_group(op: ops.Conv2d) -> int:
    return op.weight.shape[0] // op.groups


def pool_area(op: ops.Conv2d) -> int:
    """Return how many outputs of the convolution are pooled into one: CELLS of the kernels."""
    return 1 if op.pool is None else op.pool.size[0] * op.pool.size[1]


def yolo_mode(op: ops.Conv2d) -> int:
    """Return YOLO of the kernels: 0 without a fused [yolo], 2 where it leaves values raw."""
    return 0 if op.yolo is None else 2 if op.yolo.raw else 1


def residual_mode(op: ops.Conv2d) -> int:
    """Return RESIDUAL of the sm90 kernels: 0 without one, 2 for four times the area, else 1."""
    return 0 if op.residual is None else 2 if adds_quarters(op) else 1


def kinds(op: ops.Conv2d) -> tuple[int, int]:
    """Return the activations before and after the residual is added."""
    return KINDS[op.activation], KINDS[op.last_activation]


def finish(gpu: Gpu, op: ops.Conv2d) -> None:
    """Enqueue bias, activation and residual over the raw sums that a GEMM left in `out`."""
    is_linear = op.activation == op.last_activation == "linear"
    if not gpu.array(op, "bias") and is_linear and op.residual is None:
        return
    storing = gpu.storing(op.out)
    packs = storing.packs(*((op.out,) if op.residual is None else (op.out, op.residual)))
    kernel = "bias_activate_packed" if packs else "bias_activate"
    items = gpu.values(op.out) // (storing.target.pack if packs else 1)
    storing.launch(kernel, items, storing.arguments(op, op.out))


CORNER_PADDING = 8  # floats, as in the header


Output = struct("epilogue.cuh", "Output")


def output(gpu: Gpu, op: ops.Conv2d, known: Mapping[str, Any], *, filters: int) -> KernelArgs:
    """Return the arguments of an epilogue, for groups of `filters` filters."""
    group_bytes = filters * gpu.target.bytes_of(op.out)
    fills_packs = filters == op.out.shape.channels or group_bytes % 16 == 0
    is_aligned = fills_packs and not {op.out, op.residual} & gpu.target.misaligned
    return Output.of(known, is_aligned=int(is_aligned))


def biases(op: ops.Conv2d, constants: Arrays, *, groups: int, lines: int) -> Array:
    """Return (groups, lines) biases, padded with zeros to the lines of the tiles.

    With int8 a scale precedes each; see tensor_cores.constants_of().
    """
    filters = op.weight.shape[0] // groups
    given = constants.get("bias", np.zeros(op.weight.shape[0], np.float32))
    padded = np.zeros((groups, lines, *given.shape[1:]), np.float32)
    padded[:, :filters] = given.reshape(groups, filters, *given.shape[1:])
    return padded
