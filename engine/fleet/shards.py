"""From a shard of pictures to a file of rows; a file that is there is never made again."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from engine.errors import EngineError, ImageError
from engine.fleet import listing, rows
from engine.fleet.listing import Entry
from engine.fleet.plan import Plan
from engine.fleet.rows import Tally
from engine.fleet.storage import Folder
from engine.inputs import Wanted

if TYPE_CHECKING:
    from engine.detector import Detector

Format = Literal["parquet", "jsonl"]
FORMATS = ("parquet", "jsonl")


class Done(NamedTuple):
    """A shard that is finished, or the error that ends the run: its class and its message."""

    shard: int
    seen: int
    boxes: int
    found: int
    broken: int
    error: str | None = None
    message: str | None = None

    @property
    def tally(self) -> Tally:
        return Tally(self.seen, self.boxes, self.found, self.broken)


@dataclass(frozen=True)
class Shards:
    """The files of a run."""

    folder: Folder
    format: Format

    def name(self, shard: int) -> str:
        return f"shard-{shard:06d}.{self.format}"

    def write(self, shard: int, found: pa.Table) -> None:
        if self.format == "jsonl":
            content = rows.lines(found)
        else:
            file = io.BytesIO()
            pyarrow.parquet.write_table(found, file)
            content = file.getvalue()
        self.folder.write(self.name(shard), content)

    def read(self, shard: int) -> pa.Table:
        with self.folder.open(self.name(shard)) as file:
            if self.format == "parquet":
                return pyarrow.parquet.read_table(file)
            whole = pyarrow.json.ReadOptions(block_size=file.size() + 1)  # rows may be long
            columns = pyarrow.json.ParseOptions(explicit_schema=rows.SCHEMA)
            return pyarrow.json.read_json(file, whole, columns)

    def tally(self, shard: int) -> Tally:
        return rows.tally(self.read(shard))


class ShardWorker:
    """For map_batches: numbers of shards in, what became of them out.

    Errors are told in the answer, and those of loading by the first call: Ray would wrap them into
    pages of text.
    """

    def __init__(self, model: Any, out: str, form: Format, workers: int, **where: Any) -> None:
        import ray

        self._shards = Shards(Folder(out), form)
        self._workers = workers
        self._failure: EngineError | None = None
        try:
            self._plan = Plan(self._shards.folder)
            self._detector = ray.get(model).load(**where)
        except EngineError as error:
            self._failure = error

    def __call__(self, batch: dict[str, Any]) -> pa.Table:
        done = [self._work(int(each)) for each in batch["shard"]]
        return pa.Table.from_pylist([each._asdict() for each in done], schema=_ANSWER)

    def _work(self, shard: int) -> Done:
        try:
            if self._failure:
                raise self._failure
            # a worker that was lost may have finished it, without living to tell
            if self._shards.folder.has(self._shards.name(shard)):
                return Done(shard, *self._shards.tally(shard))
            found = look(self._detector, self._plan.entries(shard), workers=self._workers)
            self._shards.write(shard, found)
            return Done(shard, *rows.tally(found))
        except EngineError as error:
            return Done(shard, *Tally(), type(error).__name__, str(error))


def look(detector: Detector, entries: Iterable[Entry], *, workers: int) -> pa.Table:
    """The rows of all pictures of the entries, in order."""
    names: deque[str] = deque()

    def pictures() -> Iterator[Wanted]:
        for entry in entries:
            for name, wanted in listing.contents(entry):
                names.append(name)
                yield wanted

    outcomes: list[Any | ImageError] = []
    stream = detector.stream(pictures(), on_error="yield", workers=workers)
    with closing(stream) as remaining:  # type: ignore[type-var]
        outcomes.extend(remaining)
    return rows.table(list(names), outcomes)


_ANSWER = pa.schema(
    {
        **dict.fromkeys(("shard", "seen", "boxes", "found", "broken"), pa.int64()),
        **dict.fromkeys(("error", "message"), pa.string()),
    }
)
