"""MultiDevice: several cards as one device; the rows of a batch are split over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import astuple
from itertools import count
from typing import Any, TypeVar

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory, Placed, Ticket
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime.program import CudaProgram
from engine.backends.cuda.runtime.tickets import Submission
from engine.backends.host_processing import StagedTicket
from engine.concurrency.thread_pool import ThreadPool
from engine.errors import InputError
from engine.plan.build import Plan
from engine.vision.boxes import Boxes, Suppression

_Result = TypeVar("_Result")
_Rows = TypeVar("_Rows")


class MultiDevice:
    """Compiles a plan on each card for its share of the batch."""

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


class MultiProgram(Submission):
    """One program on each card. A batch smaller than the number of cards starts at the next card.

    `options` are those of the methods of CudaProgram with the same names.
    """

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

    def start_forward(self, pictures: Sequence[Placed]) -> StagedTicket[tuple[Array, ...]]:
        parts = self._parts(pictures)
        tickets = [program.start_forward(rows) for program, rows in parts]
        return _joined(tickets, _joined_outputs)

    def start_detect(
        self, pictures: Sequence[Placed], **options: float
    ) -> StagedTicket[list[Array]]:
        tickets = [program.start_detect(rows, **options) for program, rows in self._parts(pictures)]
        return _joined(tickets, _joined_rows)

    def start_boxes(
        self, pictures: Sequence[Placed], suppression: Suppression, **options: float
    ) -> StagedTicket[list[Boxes]]:
        parts = self._parts(pictures)
        tickets = [program.start_boxes(rows, suppression, **options) for program, rows in parts]
        return _joined(tickets, _joined_rows)

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
        for program in self._programs:
            program.close()

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


def _joined(
    tickets: Sequence[Ticket[_Result]], join: Callable[[Sequence[_Result]], _Result]
) -> StagedTicket[_Result]:
    """Return one ticket for the parts of a run on several cards."""
    return StagedTicket(("network", lambda _: join([ticket.result() for ticket in tickets])))


def _joined_outputs(parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    return tuple(np.concatenate(outputs) for outputs in zip(*parts, strict=True))


def _joined_rows(parts: Sequence[list[_Rows]]) -> list[_Rows]:
    return [rows for part in parts for rows in part]
