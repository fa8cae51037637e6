"""CpuProgram: a plan and its memory, run op by op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory, OpTime, Placed, Stages, check_heads, check_images
from engine.backends.cpu import conv
from engine.backends.cpu.definitions import DEFINITIONS
from engine.backends.cpu.heads import candidates_of_all
from engine.backends.cpu.storage import Buffers, Kernel, Storage
from engine.backends.cpu.workers import Workers
from engine.backends.host_processing import HostProcessing, scaled
from engine.concurrency import fork_safety
from engine.errors import EngineError, within_memory
from engine.plan import ops
from engine.plan.build import Plan

CONVOLUTIONS = (ops.Conv2d, ops.Chain)


@dataclass(frozen=True)
class _BoundPlan:
    """The kernels of all ops and the arrays that the host touches, for one number of rows."""

    source: Array
    kernels: tuple[Kernel, ...]
    outputs: tuple[tuple[Array, float | None], ...]  # with the scales of int8 arrays
    heads: tuple[Array, ...]


class CpuProgram(HostProcessing):
    """A compiled plan. A lock serialises its runs, which share memory and recurrent state."""

    def __init__(self, plan: Plan, dtype: np.dtype[Any], *, batch: int, threads: int) -> None:
        self.plan = replace(plan, constants={})  # only packed copies are used from here on
        self.batch = batch
        self._lock = fork_safety.lock()
        self._is_closed = False
        self._workers = Workers(threads)
        constants = {name: each.astype(dtype, copy=False) for name, each in plan.constants.items()}
        with np.errstate(all="ignore"):  # sums of large weights may overflow, as their products do
            self._convolutions = {
                op: conv.choose(op, constants, self._workers, plan.scales)
                for op in plan.ops
                if isinstance(op, CONVOLUTIONS)
            }
        self._constants = {
            each.name: constants[each.name]
            for op in plan.ops
            if not isinstance(op, CONVOLUTIONS)
            for each in op.constants
        }
        self._storage = Storage(plan, dtype, batch=batch)
        self._bound: dict[int, _BoundPlan] = {}  # by the number of sequences
        self.memory = Memory(
            weights=self._weight_bytes(),
            activations=self._storage.bytes,
            workspace=self._workers.workspace_bytes,
        )

    def forward(self, images: Array) -> tuple[Array, ...]:
        with self._lock, within_memory("cpu"):
            return self._outputs(self._run(images))

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        check_heads(self.plan)
        with self._lock, within_memory("cpu"):
            return self._candidates(self._run(images), threshold, hierarchy)

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        if not isinstance(images, np.ndarray):
            images = scaled(images)
        if threshold is not None:
            check_heads(self.plan)
        with self._lock, within_memory("cpu"):
            times = [perf_counter()]
            bound = self._bind(images)
            _copy(images, bound.source)
            times.append(perf_counter())
            self._call(bound)
            times.append(perf_counter())
            result: Sequence[Any] = (
                self._outputs(bound)
                if threshold is None
                else self._candidates(bound, threshold, 0.5)
            )
            times.append(perf_counter())
        return Stages(*((end - start) * 1e3 for start, end in pairwise(times))), result

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        with self._lock:
            bound = self._bind(images)
            _copy(images, bound.source)
            times: list[list[float]] = [[] for _ in bound.kernels]
            for _ in range(repeats + 1):
                with self._workers.serial_blas(), np.errstate(all="ignore"):
                    for kernel, taken in zip(bound.kernels, times, strict=True):
                        start = perf_counter()
                        kernel()
                        taken.append((perf_counter() - start) * 1e3)
            self._storage.reset()
        return [
            OpTime(op, float(np.median(taken[1:])), self._algorithm(op))
            for op, taken in zip(self.plan.ops, times, strict=True)
        ]

    def reset(self) -> None:
        with self._lock:
            self._check_open()
            self._storage.reset()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._bound.clear()
            self._convolutions.clear()
            self._constants.clear()
            self._storage.release()
            self._workers.close()

    def _run(self, images: Array) -> _BoundPlan:
        bound = self._bind(images)
        _copy(images, bound.source)
        self._call(bound)
        return bound

    def _bind(self, images: Array) -> _BoundPlan:
        """Return the plan bound to the arrays for as many rows as there are images."""
        self._check_open()
        sequences = check_images(self.plan, images, self.batch)
        if sequences not in self._bound:
            with np.errstate(all="ignore"):  # kernels compute with weights ahead
                self._bound[sequences] = self._bind_to(sequences)
        return self._bound[sequences]

    def _call(self, bound: _BoundPlan) -> None:
        # values may become infinite or NaN, as in darknet and on a GPU
        with self._rollback(), self._workers.serial_blas(), np.errstate(all="ignore"):
            for kernel in bound.kernels:
                kernel()

    @contextmanager
    def _rollback(self) -> Iterator[None]:
        """Restore the recurrent state if a run is interrupted."""
        before = self._storage.copy_states()
        try:
            yield
        except BaseException:
            self._storage.restore_states(before)
            raise

    def _outputs(self, bound: _BoundPlan) -> tuple[Array, ...]:
        return tuple(
            np.array(
                output if scale is None else output.astype(np.float32) * np.float32(scale),
                order="C",
            )
            for output, scale in bound.outputs
        )

    def _candidates(self, bound: _BoundPlan, threshold: float, hierarchy: float) -> list[Array]:
        return [
            candidates_of_all(self.plan.heads, values, threshold=threshold, hierarchy=hierarchy)
            for values in zip(*bound.heads, strict=True)
        ]

    def _algorithm(self, op: ops.Op) -> str:
        return self._convolutions[op].algorithm if isinstance(op, CONVOLUTIONS) else ""

    def _bind_to(self, sequences: int) -> _BoundPlan:
        def rows(tensor: ops.Tensor) -> Array:
            return self._storage.rows(tensor, sequences)

        buffers = Buffers(rows, self._constants, self.plan.scales)
        return _BoundPlan(
            source=buffers.nchw(self.plan.source),
            kernels=tuple(self._kernel(op, buffers) for op in self.plan.ops),
            outputs=tuple(
                (buffers.nchw(tensor), self.plan.scales.get(tensor)) for tensor in self.plan.outputs
            ),
            heads=tuple(buffers.nchw(head.src) for head in self.plan.heads),
        )

    def _kernel(self, op: ops.Op, buffers: Buffers) -> Kernel:
        if isinstance(op, CONVOLUTIONS):
            residual = None if op.residual is None else buffers.nhwc(op.residual)
            return self._convolutions[op].bind(buffers.nhwc(op.src), buffers.nhwc(op.out), residual)
        return DEFINITIONS[type(op)](op, buffers)

    def _weight_bytes(self) -> int:
        packed = (values for each in self._convolutions.values() for values in each.weights)
        arrays = [*self._constants.values(), *packed]
        return sum({values.ctypes.data: values.nbytes for values in arrays}.values())

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError("program: closed. Load the network again")


def _copy(images: Array, source: Array) -> None:
    """Copy channel by channel: otherwise the few channels of a pixel are the innermost loop."""
    for channel in range(source.shape[1]):
        np.copyto(source[:, channel], images[:, channel])
