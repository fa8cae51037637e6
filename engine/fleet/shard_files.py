"""The result files of shards, and the Ray worker that writes them."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from engine.errors import EngineError
from engine.files.naming import shown
from engine.fleet import listing, rows
from engine.fleet.listing import Entry
from engine.fleet.rows import Tally
from engine.fleet.shard_plan import ShardPlan
from engine.fleet.storage import Folder, reason
from engine.inputs import Wanted

if TYPE_CHECKING:
    from engine.detector import Detector

Format = Literal["parquet", "jsonl"]
FORMATS = ("parquet", "jsonl")
_SHARD_NAME = re.compile(rf"shard-\d{{6,}}\.(?:{'|'.join(FORMATS)})")
MAX_PROBLEMS = 20  # listed in a shard's result

_log = logging.getLogger("engine")


class ShardResult(NamedTuple):
    """The counts of a finished shard, or the error (class and message) that ends the run."""

    shard: int
    pictures: int
    boxes: int
    pictures_with_boxes: int
    failed_pictures: int
    error: str | None = None
    message: str | None = None
    problems: tuple[str, ...] = ()  # the first errors of pictures

    @property
    def tally(self) -> Tally:
        return Tally(self.pictures, self.boxes, self.pictures_with_boxes, self.failed_pictures)


def shard_name(shard: int, form: str) -> str:
    return f"shard-{shard:06d}.{form}"


def is_shard_name(name: str) -> bool:
    return _SHARD_NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class ShardFiles:
    """The result files of a run, one for each shard."""

    folder: Folder
    format: Format
    task: str = "detector"

    def name(self, shard: int) -> str:
        return shard_name(shard, self.format)

    def write(self, shard: int, table: pa.Table) -> None:
        if self.format == "jsonl":
            content = rows.json_lines(table)
        else:
            file = io.BytesIO()
            pyarrow.parquet.write_table(table, file)
            content = file.getvalue()
        self.folder.write(self.name(shard), content)

    def read_if_whole(self, shard: int, pictures: int) -> pa.Table | None:
        """Return the table of a shard; log a damaged one, which counts as missing."""
        try:
            table = self.read(shard)
            if rows.are_whole(table, pictures):
                return table
            problem = f"columns or some of its {pictures} rows are missing"
        except (OSError, pa.ArrowException) as error:  # PyArrow raises either for damaged files
            problem = reason(error)
        where = f"{shown(self.folder.name)}: {self.name(shard)}"
        _log.warning("%s: is damaged and will be rebuilt: %s", where, problem)
        return None

    def read(self, shard: int) -> pa.Table:
        with self.folder.open(self.name(shard)) as file:
            if self.format == "parquet":
                return pyarrow.parquet.read_table(file)
            # One block for the whole file, because a row must not be longer than a block.
            reading = pyarrow.json.ReadOptions(block_size=file.size() + 1)
            schema = rows.SCHEMA_OF_CLASSES
            if self.task == "detector":  # with an inferred schema, nulls would move inside lists
                schema = pa.schema([*rows.SCHEMA, *rows.CODE_SCHEMA])
            parsing = pyarrow.json.ParseOptions(explicit_schema=schema)
            table = pyarrow.json.read_json(file, reading, parsing)
            return rows.without_missing_codes(table)


class ShardWorker:
    """A class for map_batches: shard numbers become shard results.

    Engine errors are part of the result, because Ray wraps exceptions in pages of text. An error in
    the constructor is reported by the first call.
    """

    def __init__(
        self, model: Any, out: str, form: Format, task: str, workers: int, **resources: Any
    ) -> None:
        import ray

        self._files = ShardFiles(Folder(out), form, task)
        self._workers = workers
        self._load_error: EngineError | None = None
        try:
            self._plan = ShardPlan(self._files.folder)
            self._detector = ray.get(model).load(**resources)
        except EngineError as error:
            self._load_error = error

    def __call__(self, batch: dict[str, Any]) -> pa.Table:
        results = [self._process(int(each)) for each in batch["shard"]]
        return pa.Table.from_pylist([each._asdict() for each in results], schema=_RESULT_SCHEMA)

    def _process(self, shard: int) -> ShardResult:
        try:
            if self._load_error:
                raise self._load_error
            # A lost worker may have written the file without reporting it.
            found = None
            entries = self._plan.entries(shard)
            if self._files.folder.has(self._files.name(shard)):
                pictures = sum(entry.pictures for entry in entries)
                found = self._files.read_if_whole(shard, pictures)
                if found is not None and not rows.tally(found).failed_pictures:
                    return self._result(shard, found)
            table = detect_again(self._detector, entries, found, workers=self._workers)
            self._files.write(shard, table)
            return self._result(shard, table)
        except EngineError as error:
            return ShardResult(shard, *Tally(), type(error).__name__, str(error))

    def _result(self, shard: int, table: pa.Table) -> ShardResult:
        return ShardResult(
            shard, *rows.tally(table), problems=tuple(rows.problems(table, MAX_PROBLEMS))
        )


def detect_again(
    detector: Detector, entries: Sequence[Entry], found: pa.Table | None, *, workers: int
) -> pa.Table:
    """Return the rows of all pictures of the entries; only those that failed are read again."""
    if found is None:
        return detect(detector, entries, workers=workers)
    failed = [number for number, each in enumerate(found["error"].to_pylist()) if each is not None]
    again = detect(detector, entries, workers=workers, only=frozenset(failed))
    if len(again) != len(failed):  # a file of many pictures has become smaller
        return detect(detector, entries, workers=workers)
    place_of = {number: len(found) + place for place, number in enumerate(failed)}
    both = pa.concat_tables([found, again], promote_options="default")
    return both.take([place_of.get(number, number) for number in range(len(found))])


def detect(
    detector: Detector, entries: Iterable[Entry], *, workers: int, only: Set[int] | None = None
) -> pa.Table:
    """Return the rows of the pictures of the entries, in order, or those with these numbers."""
    names: list[str] = []

    def pictures() -> Iterator[Wanted]:
        found = chain.from_iterable(map(listing.read_entry, entries))
        for number, (name, picture) in enumerate(found):
            if only is None or number in only:
                names.append(name)
                yield picture

    stream = detector.stream(pictures(), on_error="yield", workers=workers, expand=False)
    with closing(stream):
        outcomes: list[Any] = list(stream)  # Result or Classification, or an ImageError
    if detector.task == "classifier":
        return rows.table_of_classes(names, outcomes)
    return rows.table(names, outcomes, has_codes=detector.settings.read)


_RESULT_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("shard", *Tally._fields), pa.int64()),
        **dict.fromkeys(("error", "message"), pa.string()),
        "problems": pa.list_(pa.string()),
    }
)
