"""Which picture is in which shard: written when a run begins, read by whoever works on it.

A table whose row group N is shard N, so that a worker reads its own entries only.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import pyarrow as pa
import pyarrow.parquet

from engine.fleet.listing import Entry
from engine.fleet.storage import Folder

FILE = "pictures.parquet"

_MOST = 1000  # pictures in a shard of a long run; a short one has about a hundred shards
_FEWEST = 32

_SCHEMA = pa.schema(
    {
        "name": pa.binary(),  # a name may have bytes that are no text
        "pictures": pa.int64(),
        "row_group": pa.int32(),
        "first": pa.int64(),
        "problem": pa.binary(),
    }
)


def write(folder: Folder, entries: Iterable[Entry], size: int | None = None) -> tuple[int, int]:
    """How many shards and pictures there are; a shard has about `size` of these."""
    shards = pictures = 0
    content = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(content, _SCHEMA, compression="zstd") as table:
        for shard in _dealt(entries, size):
            shards += 1
            pictures += sum(each.pictures for each in shard)
            table.write_table(_table_of(shard))
    folder.write(FILE, content.getvalue())
    return shards, pictures


class Plan:
    def __init__(self, folder: Folder) -> None:
        self._table = pyarrow.parquet.ParquetFile(folder.open(FILE))

    def entries(self, shard: int) -> list[Entry]:
        rows = self._table.read_row_group(shard).to_pylist()
        return [
            Entry(
                os.fsdecode(row["name"]),
                *(row["pictures"], row["row_group"], row["first"]),
                problem=None if row["problem"] is None else os.fsdecode(row["problem"]),
            )
            for row in rows
        ]


def _dealt(entries: Iterable[Entry], size: int | None) -> Iterator[list[Entry]]:
    remaining = iter(entries)
    if size is None:
        first = list(islice(remaining, 100 * _MOST))
        size = min(max(_FEWEST, sum(each.pictures for each in first) // 100), _MOST)
        remaining = chain(first, remaining)
    shard: list[Entry] = []
    room = size
    for entry in remaining:
        if shard and entry.pictures > room:
            yield shard
            shard, room = [], size
        shard.append(entry)
        room -= entry.pictures
    if shard:
        yield shard


def _table_of(shard: list[Entry]) -> pa.Table:
    rows = [
        {
            **entry._asdict(),
            "name": os.fsencode(entry.name),
            "problem": None if entry.problem is None else os.fsencode(entry.problem),
        }
        for entry in shard
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
