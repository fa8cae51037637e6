"""The memory of a program's tensors: NHWC, in the plan's arena or allocated one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.plan.build import Plan
from engine.plan.ops import Constant, Tensor

Kernel = Callable[[], object]  # runs one op, bound to its arrays
Scales = Mapping[Tensor, float]  # of int8 tensors


class Storage:
    """The memory of every tensor, for at most `batch` sequences."""

    def __init__(self, plan: Plan, dtype: np.dtype[Any], *, batch: int) -> None:
        self._views = plan.views
        self._int8 = plan.scales.keys()
        self._owned: dict[Tensor, Array] = {}
        self.bytes = 0
        arena = self._allocate(plan.arena.size * batch, dtype) if plan.arena else None
        for tensor in plan.tensors:
            self._own(tensor, plan, arena, dtype, batch)
        self._states = [tensor for tensor in self._owned if tensor.is_state]

    def _own(
        self, tensor: Tensor, plan: Plan, arena: Array | None, dtype: np.dtype[Any], batch: int
    ) -> None:
        if tensor in self._owned:
            return
        if tensor in plan.views:
            self._own(plan.views[tensor].root, plan, arena, dtype, batch)
            return
        size = tensor.steps * tensor.shape.size * batch
        if arena is not None and plan.arena and tensor in plan.arena.offsets:
            first = plan.arena.offsets[tensor] * batch
            self._owned[tensor] = arena[first : first + size]
        else:
            own = np.dtype(np.int8) if tensor in self._int8 else dtype
            self._owned[tensor] = self._allocate(size, own)

    def _allocate(self, size: int, dtype: np.dtype[Any]) -> Array:
        values = np.zeros(size, dtype)
        self.bytes += values.nbytes
        return values

    def rows(self, tensor: Tensor, sequences: int) -> Array:
        """Return the NHWC array of `tensor` for a run of `sequences` sequences."""
        channels, height, width = tensor.shape.sides
        if tensor in self._views:
            view = self._views[tensor]
            root = self.rows(view.root, sequences)
            assert root.shape[:3] == (tensor.steps * sequences, height, width), tensor
            return root[..., view.channel : view.channel + channels]
        rows = tensor.steps * sequences
        values = self._owned[tensor][: rows * tensor.shape.size]
        return values.reshape(rows, height, width, channels)

    def copy_states(self) -> list[Array]:
        return [self._owned[tensor].copy() for tensor in self._states]

    def restore_states(self, values: list[Array]) -> None:
        for tensor, kept in zip(self._states, values, strict=True):
            self._owned[tensor][...] = kept

    def reset(self) -> None:
        for tensor in self._states:
            self._owned[tensor].fill(0)

    def release(self) -> None:
        self._owned.clear()
        self._states.clear()


class Buffers:
    """The arrays that ops read and write, as they are stored (NHWC) or as an NCHW view."""

    def __init__(
        self,
        rows: Callable[[Tensor], Array],
        constants: Mapping[str, Array],
        scales: Scales = MappingProxyType({}),
    ) -> None:
        """`rows` returns the NHWC array of a tensor."""
        self.scales = scales
        self._rows = rows
        self._constants = constants

    def nhwc(self, tensor: Tensor) -> Array:
        return self._rows(tensor)

    def nchw(self, tensor: Tensor) -> Array:
        return self.nhwc(tensor).transpose(0, 3, 1, 2)

    def constant(self, constant: Constant) -> Array:
        return self._constants[constant.name]


def flat(values: Array) -> Array:
    """Return the values of each row of an NCHW array in order: channel, row, column."""
    return values.reshape(len(values), -1)
