"""Dynamic batching: pictures from many clients share a run of the network."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from typing import Any, TypeAlias

from engine.errors import DeviceError
from engine.inputs import Batch
from engine.picture_runs import Outcome
from engine.settings import Settings

RunBatch: TypeAlias = Callable[[Batch, Sequence[Settings]], list[Outcome]]


@dataclass(frozen=True, eq=False)
class QueuedPicture:
    """A prepared picture that waits for a run of the network."""

    batch: Batch
    settings: Settings
    is_wanted: Callable[[], bool]  # False once the client has disconnected
    context: Any = None  # passed through to `deliver`
    rows: int = 1  # rows of the network's input, one for each tile
    queued_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class BatchResult:
    """An outcome or an error for each picture of a run; None for pictures no longer wanted."""

    pictures: Sequence[QueuedPicture]
    outcomes: Sequence[Outcome | Exception | None]
    started_at: float
    seconds: float


class Batcher:
    """A queue of pictures and the threads that run them in batches.

    While more pictures are expected, a partial batch waits for them, but its first picture waits at
    most `wait_seconds`. With `powers_of_two`, batch sizes are 1, 2, 4, … and `max_batch`, because a
    GPU captures one CUDA graph for each size.
    """

    def __init__(
        self,
        run: RunBatch,
        deliver: Callable[[BatchResult], None],
        *,
        max_batch: int,
        threads: int,
        wait_seconds: float,
        powers_of_two: bool,
    ) -> None:
        self._run = run
        self._deliver = deliver
        self._max_batch = max_batch
        self._wait_seconds = wait_seconds
        self._powers_of_two = powers_of_two
        self._queue: deque[QueuedPicture] = deque()
        self._expected = 0
        self._changed = Condition()
        self._gathering = Lock()  # only one thread forms a batch at a time, so batches stay large
        self._is_closed = False
        self._threads = [
            Thread(target=self._work, name=f"engine-batch-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """The number of queued pictures."""
        return len(self._queue)

    def expect(self) -> None:
        """Announce a picture; submit() or cancel_expected() must follow."""
        with self._changed:
            self._expected += 1

    def submit(self, picture: QueuedPicture) -> None:
        with self._changed:
            self._expected -= 1
            self._queue.append(picture)
            self._notify_if_ready()

    def cancel_expected(self) -> None:
        """Withdraw the announcement of one picture."""
        with self._changed:
            self._expected -= 1
            self._notify_if_ready()

    def close(self) -> None:
        """Run the queued pictures, then stop the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _notify_if_ready(self) -> None:
        """Notify only when a batch may be ready, since each wake-up needs the GIL."""
        if len(self._queue) in (1, self._max_batch) or not self._expected:
            self._changed.notify()

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Run one batch and return True, or False at the end; keep no reference to the batch."""
        pictures = self._gather()
        started_at = time.monotonic()
        wanted = [picture for picture in pictures if picture.is_wanted()]
        remaining = iter(self._outcomes(wanted) if wanted else ())
        selected = set(wanted)
        outcomes = [next(remaining) if each in selected else None for each in pictures]
        seconds = time.monotonic() - started_at
        if pictures:
            self._deliver(BatchResult(pictures, outcomes, started_at, seconds))
        return bool(pictures)

    def _gather(self) -> list[QueuedPicture]:
        """Return the next batch, or [] once the batcher is closed and the queue is empty."""
        with self._gathering, self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            if not self._queue:
                return []
            deadline = self._queue[0].queued_at + self._wait_seconds
            while self._expected and self._rows() < self._max_batch:
                left = deadline - time.monotonic()
                if left <= 0 or self._is_closed:
                    break
                self._changed.wait(left)
            return [self._queue.popleft() for _ in range(self._batch_size())]

    def _rows(self) -> int:
        return sum(picture.rows for picture in self._queue)

    def _batch_size(self) -> int:
        rows = 0
        for count, picture in enumerate(self._queue, start=1):
            rows += picture.rows
            if rows >= self._max_batch:
                return count
        count = len(self._queue)
        return 1 << (count.bit_length() - 1) if self._powers_of_two else count

    def _outcomes(self, pictures: Sequence[QueuedPicture]) -> list[Outcome | Exception]:
        """Run `pictures`; if the run fails, run each alone so that only the cause gets the error.

        A DeviceError is not retried.
        """
        try:
            batch = Batch.joined([picture.batch for picture in pictures])
            return [*self._run(batch, [picture.settings for picture in pictures])]
        except DeviceError as error:
            return [error] * len(pictures)
        except Exception as error:
            if len(pictures) == 1:
                return [error]
            return [outcome for picture in pictures for outcome in self._outcomes([picture])]
