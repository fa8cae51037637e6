"""MultiDevice: several cards as one; the rows of a batch are spread over them, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Memory
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.program import CudaProgram
from engine.errors import InputError
from engine.plan.build import Plan

Array = NDArray[Any]
_Result = TypeVar("_Result")


class MultiDevice:
    """Each card compiles the plan for its share of the batch."""

    passes = CudaDevice.passes

    def __init__(self, indices: Sequence[int]) -> None:
        self.name = ",".join(f"cuda:{index}" for index in indices)
        self.devices: list[CudaDevice] = []
        try:
            for index in indices:
                self.devices.append(CudaDevice(index))
        except BaseException:
            self.close()
            raise

    def compile(
        self,
        plan: Plan,
        *,
        batch: int = 1,
        precision: str = "float32",
        graph: bool = True,
        algorithm: str | None = None,
    ) -> MultiProgram:
        if plan.steps > 1 or any(tensor.is_state for tensor in plan.tensors):
            raise InputError(
                f"{self.name}: a recurrent network remembers on one device. "
                f"Use --device {self.devices[0].name}"
            )
        share = -(-batch // len(self.devices))
        return MultiProgram(
            [
                device.compile(
                    plan, batch=share, precision=precision, graph=graph, algorithm=algorithm
                )
                for device in self.devices
            ],
            batch=batch,
        )

    def close(self) -> None:
        for device in self.devices:
            device.close()


class MultiProgram:
    """One program a card. Small batches go to one card each, the next to the next."""

    def __init__(self, programs: Sequence[CudaProgram], *, batch: int) -> None:
        self.plan = programs[0].plan
        self.batch = batch
        self._programs = programs
        self._turns = count()
        self._threads = ThreadPoolExecutor(len(programs), thread_name_prefix="cuda")

    @property
    def memory(self) -> Memory:
        """Of all cards together."""
        each = [program.memory for program in self._programs]
        return Memory(
            weights=sum(memory.weights for memory in each),
            activations=sum(memory.activations for memory in each),
            workspace=sum(memory.workspace for memory in each),
        )

    def forward(self, images: Array) -> tuple[Array, ...]:
        parts = self._spread(images, lambda program, rows: program.forward(rows))
        return tuple(np.concatenate(outputs) for outputs in zip(*parts, strict=True))

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        parts = self._spread(
            images,
            lambda program, rows: program.detect(rows, threshold=threshold, hierarchy=hierarchy),
        )
        return [rows for part in parts for rows in part]

    def reset(self) -> None:
        """Nothing to do: recurrent networks are refused."""

    def close(self) -> None:
        self._threads.shutdown()
        for program in self._programs:
            program.close()

    def _spread(
        self, images: Array, call: Callable[[CudaProgram, Array], _Result]
    ) -> list[_Result]:
        if not 0 < len(images) <= self.batch:
            raise InputError(f"images: expected 1 to {self.batch} rows, got {len(images)}")
        self._programs[0].check_usable()  # threads do not survive a fork either
        share = -(-len(images) // len(self._programs))
        starts = range(0, len(images), share)
        first = next(self._turns)
        chosen = [
            self._programs[(first + turn) % len(self._programs)] for turn in range(len(starts))
        ]
        rows = [images[start : start + share] for start in starts]
        if len(rows) == 1:
            return [call(chosen[0], rows[0])]
        return list(self._threads.map(call, chosen, rows))
