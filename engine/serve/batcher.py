"""Batcher: pictures of many clients wait here until a run takes several of them together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from typing import Any, TypeAlias

from engine.detector import Outcome
from engine.errors import DeviceError
from engine.inputs import Batch
from engine.settings import Settings

Run: TypeAlias = Callable[[Batch, Sequence[Settings]], list[Outcome]]


@dataclass(frozen=True, eq=False)
class Job:
    """A picture that is ready for the network."""

    batch: Batch
    settings: Settings
    is_wanted: Callable[[], bool]  # whether its client is still there
    answer: Any = None  # whatever `deliver` wants to find here
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class Done:
    """What became of the jobs of one run: an outcome or an error for each; None if unwanted."""

    jobs: Sequence[Job]
    outcomes: Sequence[Outcome | Exception | None]
    began: float
    seconds: float


class Batcher:
    """Threads that run what waits. The first that waits does so for `wait_seconds` at most.

    It waits for those that are expected, and not at all if none is. With `in_powers` the numbers of
    pictures in a run are 1, 2, 4, … and `most`: a GPU keeps recordings for few numbers.
    """

    def __init__(
        self,
        run: Run,
        deliver: Callable[[Done], None],
        *,
        most: int,
        threads: int,
        wait_seconds: float,
        in_powers: bool,
    ) -> None:
        self._run = run
        self._deliver = deliver
        self._most = most
        self._wait_seconds = wait_seconds
        self._in_powers = in_powers
        self._waiting: deque[Job] = deque()
        self._on_their_way = 0
        self._changed = Condition()
        self._gathering = Lock()  # one run at a time takes what waits: batches stay large
        self._is_closed = False
        self._threads = [
            Thread(target=self._work, name=f"engine-batch-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """How many pictures wait."""
        return len(self._waiting)

    def expect(self) -> None:
        """A picture is on its way: put() or forget() follows."""
        with self._changed:
            self._on_their_way += 1

    def put(self, job: Job) -> None:
        with self._changed:
            self._on_their_way -= 1
            self._waiting.append(job)
            self._wake_if_due()

    def forget(self) -> None:
        """One of those on their way does not come."""
        with self._changed:
            self._on_their_way -= 1
            self._wake_if_due()

    def close(self) -> None:
        """Run what still waits, then end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _wake_if_due(self) -> None:
        """Whoever gathers has better things to do than to look at every picture that comes."""
        if len(self._waiting) in (1, self._most) or not self._on_their_way:
            self._changed.notify()

    def _work(self) -> None:
        while jobs := self._gather():
            began = time.monotonic()
            wanted = [job for job in jobs if job.is_wanted()]
            outcomes = iter(self._outcomes(wanted) if wanted else ())
            taken = set(wanted)
            found = [next(outcomes) if job in taken else None for job in jobs]
            self._deliver(Done(jobs, found, began, time.monotonic() - began))

    def _gather(self) -> list[Job]:
        """The jobs of the next run; none once the batcher is closed and everything has run."""
        with self._gathering, self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return []
            latest = self._waiting[0].since + self._wait_seconds
            while len(self._waiting) < self._most and self._on_their_way:
                left = latest - time.monotonic()
                if left <= 0 or self._is_closed:
                    break
                self._changed.wait(left)
            return [self._waiting.popleft() for _ in range(self._count())]

    def _count(self) -> int:
        count = len(self._waiting)
        if count >= self._most:
            return self._most
        return 1 << (count.bit_length() - 1) if self._in_powers else count

    def _outcomes(self, jobs: Sequence[Job]) -> list[Outcome | Exception]:
        """Where a picture makes a run fail, the others of the run do not suffer from it."""
        try:
            batch = Batch.joined([job.batch for job in jobs])
            return [*self._run(batch, [job.settings for job in jobs])]
        except DeviceError as error:
            return [error] * len(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [each for job in jobs for each in self._outcomes([job])]
