"""Tensor-core kernels of a HostDevice, played by the CPU backend on the memory of the program.

Compiling a tile for the host takes g++ seconds, and a network needs many. What a kernel computes is
tested elsewhere; played, it shows whether the lowering gave it the right tensors at the right time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cpu import conv as cpu_conv
from engine.backends.cpu.workers import Workers
from engine.backends.cuda import conv
from engine.backends.cuda.conv import sm90_fused
from engine.backends.cuda.conv.algorithm import KeepingConv2d, ScaledConv2d, adds_quarters
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import int8
from engine.plan.ops import Chain, Conv2d, Tensor

Array = NDArray[Any]

_KINDS = {1: np.int8, 2: np.float16, 4: np.float32}


class Played:
    """An algorithm, or the kernel of a chain, whose tiles are played."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def prepare(self, target: Target, op: Conv2d | Chain, constants: Arrays) -> Arrays:
        if self.real.tile(target, op) is None:
            made: Arrays = self.real.prepare(target, op, constants)
            return made
        return constants

    def enqueue(self, gpu: Gpu, op: Conv2d | Chain) -> None:
        tile: Any = self.real.tile(gpu.target, op)
        if tile is None:
            self.real.enqueue(gpu, op)
        else:
            gpu.kernels.tile(tile, 0).launch(partial(play, gpu, op), stream=gpu.stream.handle)


@contextmanager
def playing() -> Iterator[None]:
    """Play all tiles of programs that are compiled within."""
    algorithms = {name: Played(each) for name, each in conv.ALGORITHMS.items()}
    pairs = {name: Played(each) for name, each in sm90_fused._KERNELS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv, "ALGORITHMS", algorithms)
        patch.setattr(sm90_fused, "_KERNELS", pairs)
        yield


def play(gpu: Gpu, op: Conv2d | Chain) -> None:
    """Compute what the kernel of a convolution or a chain writes."""
    values = {each: _values(gpu, each) for each in op.reads if each in gpu.places}
    if isinstance(op, Chain):
        for number, link in enumerate(op.links):
            values[link.out] = _convolved(gpu, op, link, values, prefix=f"{number}.")
    elif isinstance(op, ScaledConv2d):
        product = op.multiply.out
        values[product] = values[op.src] * values[op.factor]
        values[op.out] = _convolved(gpu, op, op.after_multiply, values)
    elif isinstance(op, KeepingConv2d):
        pool = next(number for number, step in enumerate(op.tail) if step.reads[0] == op.kept)
        values[op.kept] = _convolved(gpu, op, op.fused.cut(pool), values)
        values[op.out] = _convolved(gpu, op, op.fused, values)
        _memory(gpu, op.kept)[...] = values[op.kept]
    else:
        values[op.out] = _convolved(gpu, op, op, values)
    with np.errstate(over="ignore"):  # as a card's
        _memory(gpu, op.out)[...] = values[op.out]


def _convolved(
    gpu: Gpu, owner: Conv2d | Chain, op: Conv2d, values: dict[Tensor, Array], *, prefix: str = ""
) -> Array:
    """Return a convolution of `values`; its arrays are those of `owner`."""
    constants = {
        each.name: _array(gpu.array(owner, f"{prefix}{name}"), each.shape, np.float32).copy()
        for name, each in (("weight", op.weight), ("bias", op.bias))
        if each is not None
    }
    scales = {
        each: gpu.target.scales[each] for each in (*op.reads, op.out) if each in gpu.target.scales
    }
    rounds_itself = op.src not in scales and op.out in scales
    workers = Workers(1)
    made = cpu_conv.choose(op, constants, workers, {} if rounds_itself else scales)
    sides = op.out.shape.height, op.out.shape.width, op.out.shape.channels
    is_int8 = op.out in scales and not rounds_itself
    out = np.empty((gpu.rows(op.out), *sides), np.int8 if is_int8 else np.float32)
    with np.errstate(all="ignore"), workers.serial_blas():
        made(values[op.src], out, _residual(op, values))
    if not rounds_itself:
        return out
    rounded = np.empty(out.shape, np.int8)
    int8.quantise(out, scales[op.out], rounded)
    return rounded


def _residual(op: Conv2d, values: dict[Tensor, Array]) -> Array | None:
    """Return the residual in the shape of the result: a larger map is added in flat order."""
    if op.residual is None or not adds_quarters(op):
        return None if op.residual is None else values[op.residual]
    flat = np.moveaxis(values[op.residual], 3, 1).reshape(-1, op.residual.shape.size)
    added = flat[:, : op.out.shape.size].reshape(-1, *op.out.shape.sides)
    return np.ascontiguousarray(np.moveaxis(added, 1, 3))


def _values(gpu: Gpu, tensor: Tensor) -> Array:
    found = _memory(gpu, tensor)
    return np.array(found, np.int8 if found.dtype == np.int8 else np.float32, order="C")


def _memory(gpu: Gpu, tensor: Tensor) -> Array:
    """View a tensor as (rows, height, width, channels)."""
    place, shape = gpu.places[tensor], tensor.shape
    kind = _KINDS[gpu.target.bytes_of(tensor)]
    values = (gpu.pixels(tensor) - 1) * place.pitch + shape.channels
    flat = _array(place.pointer, (values,), kind)
    sides = gpu.rows(tensor), shape.height, shape.width, shape.channels
    steps = shape.area * place.pitch, shape.width * place.pitch, place.pitch, 1
    return np.lib.stride_tricks.as_strided(flat, sides, [each * flat.itemsize for each in steps])


def _array(pointer: int, shape: tuple[int, ...], kind: Any) -> Array:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = (ctypes.c_char * size).from_address(pointer)
    return np.frombuffer(memory, kind).reshape(shape)
