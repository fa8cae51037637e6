"""MultiDevice: several cards as one device; the rows of a batch are split over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import astuple
from itertools import count, islice
from typing import Any, Generic, TypeVar

import numpy as np

from engine.arrays import Array
from engine.backends.base import DetectionSettings, Memory, Placed, TimedTicket
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime.program import CudaProgram
from engine.concurrency.thread_pool import ThreadPool
from engine.errors import InputError
from engine.plan.build import Plan
from engine.vision.boxes import Boxes

_Result = TypeVar("_Result")
_Rows = TypeVar("_Rows")


class MultiDevice:
    """Several cards, each of which runs a plan for its share of the batch."""

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

    def describe(self) -> str:
        return "; ".join(device.describe() for device in self.devices)

    def compile(self, plan: Plan, *, batch: int = 1, **options: Any) -> MultiProgram:
        """Compile the plan for each card; the options are those of CudaDevice.compile()."""
        if plan.steps > 1 or any(tensor.is_state for tensor in plan.tensors):
            raise InputError(
                f"{self.name}: a recurrent network remembers on one device. "
                f"Use --device {self.devices[0].name}"
            )
        share = -(-batch // len(self.devices))
        programs = [device.compile(plan, batch=share, **options) for device in self.devices]
        return MultiProgram(programs, batch=batch)

    def close(self) -> None:
        """Close all cards, even if one fails; all programs first, as cards share pinned memory."""
        with ExitStack() as last_first:
            for device in self.devices:
                last_first.callback(device.close)
            for device in self.devices:
                last_first.callback(device.close_programs)


class MultiProgram:
    """One program on each card. A batch smaller than the number of cards starts at the next card.

    The options of detect() are those of CudaProgram.
    """

    scales_pictures = True

    def __init__(self, programs: Sequence[CudaProgram], *, batch: int) -> None:
        self.plan = programs[0].plan
        self.batch = batch
        self._programs = programs
        self._turns = count()
        self._threads = ThreadPool(len(programs), "cuda")

    @property
    def memory(self) -> Memory:
        """The sum over all cards."""
        parts = [astuple(program.memory) for program in self._programs]
        return Memory(*map(sum, zip(*parts, strict=True)))

    @property
    def runs_ahead(self) -> int:
        """Enough runs to occupy all cards, and one more."""
        cards = len(self._programs)
        return -(-cards // min(self.batch, cards)) + 1

    @property
    def submitters(self) -> int:
        return max(program.submitters for program in self._programs)

    def forward(self, images: Array) -> tuple[Array, ...]:
        return _joined_outputs(self._spread(images, lambda program, rows: program.forward(rows)))

    def detect(self, images: Array, **options: float) -> list[Array]:
        parts = self._spread(images, lambda program, rows: program.detect(rows, **options))
        return _joined_rows(parts)

    def submit(
        self, pictures: Sequence[Placed], settings: Sequence[DetectionSettings]
    ) -> TimedTicket[list[Boxes]]:
        left = iter(settings)
        parts = ((each, rows, [*islice(left, len(rows))]) for each, rows in self._parts(pictures))
        return _Joined([each.submit(rows, own) for each, rows, own in parts], _joined_rows)

    def submit_forward(self, pictures: Sequence[Placed]) -> TimedTicket[tuple[Array, ...]]:
        tickets = [program.submit_forward(rows) for program, rows in self._parts(pictures)]
        return _Joined(tickets, _joined_outputs)

    def pin(self, frames: Array) -> None:
        """Pin for all cards; closing the first card unpins."""
        self._programs[0].pin(frames)
        self.know_pinned(frames)

    def know_pinned(self, frames: Array) -> None:
        for program in self._programs:
            program.know_pinned(frames)

    def reset(self) -> None:
        """Do nothing: recurrent networks are refused."""

    def close(self) -> None:
        self._threads.close()
        with ExitStack() as closing:  # all of them, even if one fails
            for program in self._programs:
                closing.callback(program.close)

    def _spread(
        self, images: Array, call: Callable[[CudaProgram, Array], _Result]
    ) -> list[_Result]:
        parts = self._parts(images)
        if len(parts) == 1:
            return [call(*parts[0])]
        answers = [self._threads.submit(call, *part) for part in parts]
        wait(answers)  # for all, even if one fails
        return [answer.result() for answer in answers]

    def _parts(self, rows: Sequence[Any] | Array) -> list[tuple[CudaProgram, Any]]:
        """Split the rows over the cards."""
        if not 0 < len(rows) <= self.batch:
            raise InputError(f"images: expected 1 to {self.batch} rows, got {len(rows)}")
        self._programs[0].check_usable()  # threads do not survive a fork either
        share = -(-len(rows) // len(self._programs))
        first = next(self._turns)
        return [
            (self._programs[(first + turn) % len(self._programs)], rows[start : start + share])
            for turn, start in enumerate(range(0, len(rows), share))
        ]


class _Joined(Generic[_Result]):
    """One ticket for the parts of a run on several cards."""

    def __init__(
        self, tickets: Sequence[TimedTicket[_Result]], join: Callable[[Sequence[_Result]], _Result]
    ) -> None:
        self._tickets, self._join = tickets, join

    def result(self) -> _Result:
        return self._join([each.result() for each in self._tickets])

    @property
    def milliseconds(self) -> Mapping[str, float]:
        parts = [each.milliseconds for each in self._tickets]
        return {stage: max(each[stage] for each in parts) for stage in parts[0]}


def _joined_outputs(parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    return tuple(np.concatenate(outputs) for outputs in zip(*parts, strict=True))


def _joined_rows(parts: Sequence[list[_Rows]]) -> list[_Rows]:
    return [rows for part in parts for rows in part]
