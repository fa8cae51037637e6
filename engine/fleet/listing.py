"""From the names a user gives to pictures: also those in Parquet files and in object stores."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.fleet import storage
from engine.fleet.batches import column_of, picture
from engine.fleet.opening import opened
from engine.inputs import Wanted
from engine.sources import media
from engine.sources.expand import STDIN, expand
from engine.sources.media import Media, MediaKind
from engine.vision.extensions import PICTURE_EXTENSIONS

_TABLES = (".parquet", ".pq")
_ROWS_AT_ONCE = 16  # of a Parquet file's pictures


class Entry(NamedTuple):
    """A picture, or the pictures in a row group of a Parquet file, or why there are none."""

    name: str
    pictures: int = 1
    row_group: int | None = None
    first: int = 0  # the number of its first row in the file
    problem: str | None = None


def entries(
    names: Iterable[str], *, recursive: bool = False, lines: Iterable[str] = ()
) -> Iterator[Entry]:
    """What the names stand for, in order; `lines` are those that `-` stands for.

    A folder, on a disk or in a store, gives its pictures and its Parquet files. Names of files
    become absolute: they are opened on other machines, from other folders.
    """
    for name in names:
        if storage.is_remote(name):
            yield from _of_store(name, recursive=recursive)
            continue
        tables = _tables_in(name, recursive=recursive)
        for table in tables:
            yield from _of_table(os.path.abspath(table))  # noqa: PTH100 - as the others' names
        for place in expand([name], recursive=recursive, lines=lines if name == STDIN else ()):
            if not (tables and place.kind is MediaKind.BROKEN):
                yield from _of_place(place)


def contents(entry: Entry) -> Iterator[tuple[str, Wanted]]:
    """Names and pictures of an entry, as many as it has."""
    if entry.problem is not None:
        yield entry.name, ImageError(entry.problem)
    elif entry.row_group is None:
        yield entry.name, opened(entry.name)
    else:
        yield from _rows(entry, entry.row_group)


# ---------------------------------------------------------------- on disks


def _of_place(place: Media) -> Iterator[Entry]:
    if place.has_frames:
        kind = "a camera" if place.kind is MediaKind.LIVE else "a video"
        raise InputError(f"{shown(place.name)}: expected pictures, got {kind}")
    if place.kind is MediaKind.BROKEN:
        yield Entry(place.name, problem=place.problem)
    elif place.kind is MediaKind.URL or storage.is_remote(place.name):
        yield from _of_file(place.name)
    else:
        yield from _of_file(os.path.abspath(place.name))  # noqa: PTH100 - keeps stray bytes


def _tables_in(folder: str, *, recursive: bool) -> list[str]:
    if folder == STDIN or not Path(folder).is_dir():
        return []
    found = Path(folder).rglob("*") if recursive else Path(folder).glob("*")
    return sorted(str(each) for each in found if each.suffix.lower() in _TABLES)


def _of_file(name: str) -> Iterator[Entry]:
    if PurePosixPath(name).suffix.lower() in _TABLES and not media.is_url(name):
        return _of_table(name)
    return iter([Entry(name)])


# ---------------------------------------------------------------- in stores


def _of_store(name: str, *, recursive: bool) -> Iterator[Entry]:
    """Of a file, a folder or a pattern."""
    folder, is_wanted = name, _is_ours
    if glob.has_magic(name):
        above = name[: next(at for at, each in enumerate(name) if each in "*?[")]
        folder = above.rpartition("/")[0]
        pattern = storage.locate(name)[1]
        is_wanted = lambda path: fnmatch.fnmatchcase(path, pattern)  # noqa: E731
        recursive = True
    try:
        files, path = storage.locate(folder)
        about = files.get_file_info(path)
        if about.type == pyarrow.fs.FileType.File:
            yield from _of_file(name)
            return
        if about.type == pyarrow.fs.FileType.NotFound:
            yield Entry(name, problem=f"{shown(name)}: picture: cannot be read: is not there")
            return
        found = files.get_file_info(pyarrow.fs.FileSelector(path, recursive=recursive))
    except (OSError, pa.ArrowException) as error:
        yield Entry(name, problem=f"{shown(name)}: cannot be listed: {storage.reason(error)}")
        return
    paths = sorted(each.path for each in found if each.is_file and is_wanted(each.path))
    if not paths:
        yield Entry(name, problem=f"{shown(name)}: has no pictures")
    for each in paths:
        yield from _of_file(storage.inside(folder, each))


def _is_ours(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in (*PICTURE_EXTENSIONS, *_TABLES)


# ---------------------------------------------------------------- in Parquet files


def _of_table(name: str) -> Iterator[Entry]:
    """Its row groups; the rows are read by who looks at them."""
    try:
        with _opened(name) as file:
            counts = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
            columns = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        problem = f"{shown(name)}: table: cannot be read: {storage.reason(error)}"
        yield Entry(name, problem=problem)
        return
    try:
        column_of(columns)
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from None
    first = 0
    for number, count in enumerate(counts):
        if count:
            yield Entry(name, count, number, first)
        first += count


def _rows(entry: Entry, row_group: int) -> Iterator[tuple[str, Wanted]]:
    """A file that breaks off has an error in place of each row that is left."""
    done = 0
    try:
        with _opened(entry.name) as file:
            columns = file.schema_arrow.names
            column = column_of(columns)
            wanted = [each for each in ("path", column) if each in columns]
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[row_group], columns=wanted):
                for row in batch.to_pylist():
                    number = f"{entry.name}#{entry.first + done}"
                    done += 1
                    yield _of_row(row[column], row.get("path"), number, entry.name)
    except (OSError, pa.ArrowException) as error:
        problem = f"{shown(entry.name)}: table: cannot be read: {storage.reason(error)}"
        for at in range(entry.first + done, entry.first + entry.pictures):
            yield f"{entry.name}#{at}", ImageError(problem)


def _of_row(value: object, path: object, number: str, table: str) -> tuple[str, Wanted]:
    """A row's picture is called by its path, else by its number."""
    if isinstance(value, str):
        value = storage.beside(table, value)
        return value, opened(value)
    name, wanted = picture(value, path if isinstance(path, str) else None)
    return (name, wanted) if name else picture(value, number)  # type: ignore[return-value]


def _opened(name: str) -> pyarrow.parquet.ParquetFile:
    files, path = storage.locate(name)
    return pyarrow.parquet.ParquetFile(path, filesystem=files)
