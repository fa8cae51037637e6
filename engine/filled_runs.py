"""Fill runs of the network with the tiles of successive pictures."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from engine.backends.base import Placed, TimedTicket
from engine.errors import ImageError
from engine.inputs import Batch, Prepared
from engine.settings import Settings
from engine.vision.boxes import Boxes

Submit: TypeAlias = Callable[
    [Sequence[Placed], Sequence[Settings], Sequence[bool]], TimedTicket[list[Boxes]]
]


@dataclass(eq=False)
class Pending:
    """A picture, and the results of its rows so far."""

    entry: Prepared | ImageError
    settings: Settings
    rows: int
    found: list[Boxes] = field(default_factory=list)
    milliseconds: Counter[str] = field(default_factory=Counter)

    @property
    def is_complete(self) -> bool:
        return len(self.found) == self.rows


def filled_runs(
    pictures: Iterable[tuple[Batch, Settings]], submit: Submit, *, rows: int, ahead: int
) -> Iterator[Pending]:
    """Yield each picture in order once all its rows have run, `rows` at a time.

    `pictures` are batches of one entry. `submit` starts a run of rows, given the settings of each
    and whether it is a tile; at most `ahead` runs are started before one is waited for.
    """
    pending: deque[Pending] = deque()
    waiting: list[tuple[Placed, Pending]] = []
    started: deque[tuple[TimedTicket[list[Boxes]], list[Pending]]] = deque()

    def start() -> None:
        placed, owners = (list(column) for column in zip(*waiting, strict=True))
        waiting.clear()
        are_tiles = [each.rows > 1 for each in owners]
        ticket = submit(placed, [each.settings for each in owners], are_tiles)
        started.append((ticket, owners))

    def finish() -> None:
        ticket, owners = started.popleft()
        for owner, boxes in zip(owners, ticket.result(), strict=True):
            owner.found.append(boxes)
        for stage, taken in ticket.milliseconds.items():
            for owner in owners:
                owner.milliseconds[stage] += taken / len(owners)  # type: ignore[assignment]

    failure: Exception | None = None
    given = iter(pictures)
    while True:
        try:
            batch, settings = next(given)
        except StopIteration:
            break
        except Exception as error:  # raised after the results of earlier pictures
            failure = error
            break
        (entry,) = batch.pictures
        owner = Pending(entry, settings, len(batch.placed))
        pending.append(owner)
        for placed in batch.placed:
            waiting.append((placed, owner))
            if len(waiting) == rows:
                start()
                while len(started) > ahead:
                    finish()
        while pending and pending[0].is_complete:
            yield pending.popleft()
    if waiting:
        start()
    while started:
        finish()
    yield from pending
    if failure is not None:
        raise failure
