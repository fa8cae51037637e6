"""CpuProgram: a plan with memory, run op by op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory, OpTime, Placed, Stages
from engine.backends.cpu import conv
from engine.backends.cpu.definitions import DEFINITIONS
from engine.backends.cpu.heads import candidates_of_all
from engine.backends.cpu.storage import Buffers, Step, Storage
from engine.backends.cpu.workers import Workers
from engine.backends.host_processing import HostProcessing, scaled
from engine.concurrency import fork_safety
from engine.errors import EngineError, InputError, within_memory
from engine.plan import ops
from engine.plan.build import Plan

CONVOLUTIONS = (ops.Conv2d, ops.Chain)


@dataclass(frozen=True)
class _Run:
    """Everything that a run of one number of rows calls and touches."""

    source: Array
    steps: tuple[Step, ...]
    outputs: tuple[Array, ...]
    heads: tuple[Array, ...]


class CpuProgram(HostProcessing):
    """Runs are serialised by a lock: recurrent state and memory are shared."""

    def __init__(self, plan: Plan, dtype: np.dtype[Any], *, batch: int, threads: int) -> None:
        self.plan = replace(plan, constants={})  # packed copies serve the program from here on
        self.batch = batch
        self._lock = fork_safety.lock()
        self._is_closed = False
        self._workers = Workers(threads)
        constants = {name: each.astype(dtype, copy=False) for name, each in plan.constants.items()}
        self._convolutions = {
            op: conv.choose(op, constants, self._workers)
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
        self._runs: dict[int, _Run] = {}
        self.memory = Memory(
            weights=self._weight_bytes(),
            activations=self._storage.bytes,
            workspace=self._workers.workspace_bytes,
        )

    def forward(self, images: Array) -> tuple[Array, ...]:
        with self._lock, within_memory("cpu"):
            return self._outputs(self._run(images))

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        self._check_heads()
        with self._lock, within_memory("cpu"):
            return self._candidates(self._run(images), threshold, hierarchy)

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        if not isinstance(images, np.ndarray):
            images = scaled(images)
        if threshold is not None:
            self._check_heads()
        with self._lock, within_memory("cpu"):
            times = [perf_counter()]
            run = self._bound(images)
            _copy(images, run.source)
            times.append(perf_counter())
            self._call(run)
            times.append(perf_counter())
            answer: Sequence[Any] = (
                self._outputs(run) if threshold is None else self._candidates(run, threshold, 0.5)
            )
            times.append(perf_counter())
        return Stages(*((end - start) * 1e3 for start, end in pairwise(times))), answer

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        with self._lock:
            run = self._bound(images)
            _copy(images, run.source)
            times: list[list[float]] = [[] for _ in run.steps]
            for _ in range(repeats + 1):
                with self._workers.alone(), np.errstate(all="ignore"):
                    for step, taken in zip(run.steps, times, strict=True):
                        start = perf_counter()
                        step()
                        taken.append((perf_counter() - start) * 1e3)
            self._storage.reset()
        return [
            OpTime(op, median(taken[1:]), self._algorithm(op))
            for op, taken in zip(self.plan.ops, times, strict=True)
        ]

    def reset(self) -> None:
        with self._lock:
            self._check_open()
            self._storage.reset()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._runs.clear()
            self._convolutions.clear()
            self._constants.clear()
            self._storage.release()
            self._workers.close()

    def _run(self, images: Array) -> _Run:
        run = self._bound(images)
        _copy(images, run.source)
        self._call(run)
        return run

    def _bound(self, images: Array) -> _Run:
        self._check_open()
        sequences = self._count_sequences(images)
        if sequences not in self._runs:
            self._runs[sequences] = self._bind(sequences)
        return self._runs[sequences]

    def _call(self, run: _Run) -> None:
        # infinities and their NaN are values here, as they are to darknet and to a GPU
        with self._whole(), self._workers.alone(), np.errstate(all="ignore"):
            for step in run.steps:
                step()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A run that breaks off leaves the recurrent state as it found it."""
        before = self._storage.copy_states()
        try:
            yield
        except BaseException:
            self._storage.put_states(before)
            raise

    def _outputs(self, run: _Run) -> tuple[Array, ...]:
        return tuple(np.array(output, order="C") for output in run.outputs)

    def _candidates(self, run: _Run, threshold: float, hierarchy: float) -> list[Array]:
        return [
            candidates_of_all(self.plan.heads, values, threshold=threshold, hierarchy=hierarchy)
            for values in zip(*run.heads, strict=True)
        ]

    def _algorithm(self, op: ops.Op) -> str:
        return self._convolutions[op].algorithm if isinstance(op, CONVOLUTIONS) else ""

    def _bind(self, sequences: int) -> _Run:
        def rows(tensor: ops.Tensor) -> Array:
            return self._storage.rows(tensor, sequences)

        at = Buffers(rows, self._constants)
        return _Run(
            source=at[self.plan.source],
            steps=tuple(self._step(op, at) for op in self.plan.ops),
            outputs=tuple(at[tensor] for tensor in self.plan.outputs),
            heads=tuple(at[head.src] for head in self.plan.heads),
        )

    def _step(self, op: ops.Op, at: Buffers) -> Step:
        if isinstance(op, CONVOLUTIONS):
            residual = None if op.residual is None else at.last(op.residual)
            return self._convolutions[op].bind(at.last(op.src), at.last(op.out), residual)
        return DEFINITIONS[type(op)](op, at)

    def _weight_bytes(self) -> int:
        packed = (values for each in self._convolutions.values() for values in each.weights)
        arrays = [*self._constants.values(), *packed]
        return sum({values.ctypes.data: values.nbytes for values in arrays}.values())

    def _check_heads(self) -> None:
        if not self.plan.heads:
            raise InputError("detect: expected a network with a detection layer, got none")

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError("program: closed. Load the network again")

    def _count_sequences(self, images: Array) -> int:
        steps, sides = self.plan.steps, self.plan.source.shape.sides
        most = self.batch * steps
        if images.dtype.kind != "f":
            raise InputError(f"images: expected float32, got {images.dtype}")
        if images.ndim != 4 or images.shape[1:] != sides:
            expected = ", ".join(map(str, ("rows", *sides)))
            raise InputError(f"images: expected ({expected}), got {images.shape}")
        rows = len(images)
        if not 0 < rows <= most:
            raise InputError(f"images: expected 1 to {most} rows, got {rows}")
        if rows % steps:
            raise InputError(f"images: expected a multiple of {steps} time steps, got {rows} rows")
        return rows // steps


def _copy(images: Array, source: Array) -> None:
    """Channel by channel: stored as it is, a pixel's few channels would be the innermost loop."""
    for channel in range(source.shape[1]):
        np.copyto(source[:, channel], images[:, channel])
