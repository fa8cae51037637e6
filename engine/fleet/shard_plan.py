"""The assignment of pictures to shards, written before a run starts and read by its workers.

It is a Parquet file whose row group N is shard N, so that a worker reads only its own entries.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet

from engine.errors import InputError
from engine.files.naming import shown
from engine.fleet.listing import PLAN, Entry
from engine.fleet.storage import Folder

_SHARDS = 100  # unless shards would be too small or too large
_MIN_PICTURES = 32
_MAX_PICTURES = 1000
_KEY_BYTES = 16  # a collision among a billion entries occurs once in 10**20 plans

_SCHEMA = pa.schema(
    {
        "name": pa.binary(),  # a file name need not be valid UTF-8
        "pictures": pa.int64(),
        "row_group": pa.int32(),
        "first": pa.int64(),
        "problem": pa.binary(),
        "offset": pa.int64(),
    }
)


class NewPlan(NamedTuple):
    """A plan that is not yet written, and its numbers of shards and pictures."""

    content: bytes
    shards: int
    pictures: int


def make(
    entries: Iterable[Entry], size: int | None = None, before: ShardPlan | None = None
) -> NewPlan:
    """Plan the entries, each once.

    A shard has about `size` pictures. The shards of the plan `before` come first, unchanged.
    """
    shards = pictures = 0
    content = io.BytesIO()
    planned = {_key_of(each): each.pictures for shard in _shards_of(before) for each in shard}
    with pyarrow.parquet.ParquetWriter(content, _SCHEMA, compression="zstd") as table:
        for shard in chain(_shards_of(before), _split(_unplanned(entries, planned), size)):
            shards += 1
            pictures += sum(each.pictures for each in shard)
            table.write_table(_to_table(shard))
    return NewPlan(content.getvalue(), shards, pictures)


def is_one(folder: Folder) -> bool:
    """Return whether the file with a plan's name is a plan, and not a user's table of pictures."""
    try:
        names = pyarrow.parquet.ParquetFile(folder.open(PLAN)).schema_arrow.names
    except (OSError, pa.ArrowException):  # PyArrow raises either for damaged files
        return False
    return names in (_SCHEMA.names, _SCHEMA.names[:-1])  # earlier versions had no offsets


class ShardPlan:
    """The plan in the folder of a run."""

    def __init__(self, folder: Folder) -> None:
        if not is_one(folder):
            hint = "Name another folder, or pass --overwrite"
            raise InputError(f"{shown(folder.name)}: {PLAN}: is damaged. {hint}")
        self._table = pyarrow.parquet.ParquetFile(folder.open(PLAN))
        self.shards: int = self._table.num_row_groups

    def entries(self, shard: int) -> list[Entry]:
        rows = self._table.read_row_group(shard).to_pylist()
        return [
            Entry(
                os.fsdecode(row["name"]),
                *(row["pictures"], row["row_group"], row["first"]),
                problem=None if row["problem"] is None else os.fsdecode(row["problem"]),
                offset=row.get("offset"),  # missing in plans of earlier versions
            )
            for row in rows
        ]


def _shards_of(plan: ShardPlan | None) -> Iterator[list[Entry]]:
    return map(plan.entries, range(plan.shards)) if plan else iter(())


def _unplanned(entries: Iterable[Entry], planned: dict[bytes, int]) -> Iterator[Entry]:
    """Yield and record the entries that are not yet planned; refuse files whose parts changed."""
    for entry in entries:
        key = _key_of(entry)
        pictures = planned.setdefault(key, -1)
        if pictures < 0:
            planned[key] = entry.pictures
            yield entry
        elif pictures != entry.pictures:
            name = shown(entry.name)
            raise InputError(f"{name}: has changed since the run began. Use another folder")


def _key_of(entry: Entry) -> bytes:
    """Return a digest of an entry's name, because names take several times the memory."""
    where = f"{entry.row_group} {entry.offset} ".encode()
    return blake2b(where + os.fsencode(entry.name), digest_size=_KEY_BYTES).digest()


def _split(entries: Iterable[Entry], size: int | None) -> Iterator[list[Entry]]:
    remaining = iter(entries)
    if size is None:
        first = list(islice(remaining, _SHARDS * _MAX_PICTURES))
        size = sum(each.pictures for each in first) // _SHARDS
        size = min(max(_MIN_PICTURES, size), _MAX_PICTURES)
        remaining = chain(first, remaining)
    shard: list[Entry] = []
    free = size
    for entry in remaining:
        if shard and entry.pictures > free:
            yield shard
            shard, free = [], size
        shard.append(entry)
        free -= entry.pictures
    if shard:
        yield shard


def _to_table(shard: list[Entry]) -> pa.Table:
    rows = [
        {
            **entry._asdict(),
            "name": os.fsencode(entry.name),
            "problem": None if entry.problem is None else os.fsencode(entry.problem),
        }
        for entry in shard
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
