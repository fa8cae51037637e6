"""List the pictures that names stand for, including those in Parquet files and object stores."""

from __future__ import annotations

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
from engine.fleet.batches import picture_column, to_picture
from engine.fleet.lazy_pictures import open_lazily
from engine.inputs import Wanted
from engine.sources import archive, media, patterns
from engine.sources.expand import STDIN, expand, warn_about_other_files
from engine.sources.left_out import LeftOut
from engine.sources.media import Media, MediaKind
from engine.vision.extensions import is_picture

_TABLES = (".parquet", ".pq")
_CONTAINERS = (*_TABLES, archive.SUFFIX)  # files that hold many pictures
_ROWS_PER_READ = 16
RUN, PLAN = "run.json", "pictures.parquet"  # mark a folder of results, which has no pictures


class Entry(NamedTuple):
    """A picture, the pictures in a part of a file, or the reason for having none.

    A part is a row group of a Parquet file, or begins at an offset of a .tar file.
    """

    name: str
    pictures: int = 1
    row_group: int | None = None
    first: int = 0  # number of the first row of the row group
    problem: str | None = None
    offset: int | None = None


def absolute(source: str) -> str:
    """Return a source name that works in any working directory, as stdin and URLs already do."""
    source = media.without_file_scheme(source)
    if source == STDIN or "://" in source:
        return source
    return os.path.abspath(source)  # noqa: PTH100 - a name need not be a valid Path


def list_entries(
    names: Iterable[str], *, recursive: bool = False, stdin: Iterable[str] = ()
) -> Iterator[Entry]:
    """Yield the pictures that the names stand for, in order; those of `stdin` replace `-`.

    A folder stands for its pictures and its Parquet files. Its .tar files are skipped, as without a
    cluster. File names become absolute, because workers have other working directories.
    """
    for name in names:
        if storage.is_remote(name):
            yield from _list_store(name, recursive=recursive)
            continue
        if _is_missing(name):
            yield Entry(name, problem=f"{shown(name)}: no such file or folder")
            continue
        tables = _tables_in(name, recursive=recursive)
        for table in tables:
            yield from _list_file(os.path.abspath(table))  # noqa: PTH100 - like other names
        for item in expand([name], recursive=recursive, stdin=stdin if name == STDIN else ()):
            if not (tables and item.kind is MediaKind.BROKEN):
                yield from _list_item(item)


def read_entry(entry: Entry) -> Iterator[tuple[str, Wanted]]:
    """Yield the name and the picture, or its ImageError, of each picture of an entry."""
    if entry.problem is not None:
        yield entry.name, ImageError(entry.problem)
    elif entry.offset is not None:
        yield from _read_members(entry, entry.offset)
    elif entry.row_group is None:
        yield entry.name, open_lazily(entry.name)
    else:
        yield from _read_rows(entry, entry.row_group)


# ---------------------------------------------------------------- on disks


def _is_missing(name: str) -> bool:
    """Return whether a name refers to a missing folder or file of pictures."""
    is_special = name == STDIN or media.is_url(name) or glob.has_magic(name)
    return not (is_special or media.media_of(name).has_frames or os.path.lexists(name))


def _list_item(item: Media) -> Iterator[Entry]:
    if item.has_frames:
        kind = "a camera" if item.kind is MediaKind.LIVE else "a video"
        raise InputError(f"{shown(item.name)}: expected pictures, got {kind}")
    if item.address != item.name:
        problem = "expected an address without user and password, which results would show"
        raise InputError(f"{shown(item.name)}: {problem}")
    if item.kind is MediaKind.BROKEN:
        yield Entry(item.name, problem=item.problem)
    elif item.kind is MediaKind.URL or storage.is_remote(item.name):
        yield from _list_file(item.name)
    else:
        yield from _list_file(os.path.abspath(item.name))  # noqa: PTH100 - keeps undecodable bytes


def _tables_in(folder: str, *, recursive: bool) -> list[str]:
    if folder == STDIN or not Path(folder).is_dir():
        return []
    found = Path(folder).rglob("*") if recursive else Path(folder).glob("*")
    tables = sorted(str(each) for each in found if each.suffix.lower() in _TABLES)
    plans = (Path(each).parent for each in tables if Path(each).name == PLAN)
    results = {folder for folder in plans if (folder / RUN).is_file()}
    return [each for each in tables if Path(each).parent not in results]


def _list_file(name: str) -> Iterator[Entry]:
    suffix = PurePosixPath(storage.split_options(name)[0]).suffix.lower()
    if media.is_url(name) or suffix not in _CONTAINERS:
        return iter([Entry(name)])
    return _list_archive(name) if suffix == archive.SUFFIX else _list_table(name)


# ---------------------------------------------------------------- in stores


def _list_store(name: str, *, recursive: bool) -> Iterator[Entry]:
    """List a file, a folder or a pattern in an object store."""
    try:
        files, path = storage.locate(name)
        kind = files.get_file_info(path).type
        if kind == pyarrow.fs.FileType.File:
            yield from _list_file_of_store(name)
        elif kind == pyarrow.fs.FileType.Directory:
            yield from _list_folder(name, recursive=recursive)
        elif storage.has_pattern(name):
            yield from _list_pattern(name, recursive=recursive)
        else:
            yield Entry(name, problem=f"{shown(name)}: picture: cannot be read: no such file")
    except (OSError, pa.ArrowException) as error:
        yield Entry(name, problem=f"{shown(name)}: cannot be listed: {storage.reason(error)}")


def _list_pattern(name: str, *, recursive: bool) -> Iterator[Entry]:
    """List the matching files; with `recursive`, or if only folders match, also their contents.

    The rules are those of a pattern on a disk.
    """
    folder, pattern = storage.split_pattern(name)
    top = storage.locate(folder)[1]
    names: list[str] = []
    is_of_folders = pattern.endswith("/")
    folders = [top] if is_of_folders and patterns.fits("", pattern) else []  # for **/
    for each in _found_in(folder, recursive=patterns.goes_deeper(pattern)):
        below = each.path.removeprefix(top).strip("/")
        end = "/" * (is_of_folders and not each.is_file)
        if patterns.fits(below + end, pattern):
            (names if each.is_file else folders).append(each.path)
    if not (names or folders):
        yield Entry(name, problem=f"{shown(name)}: pattern: no file matches")
    for path in sorted(names):
        yield from _list_file_of_store(storage.join(folder, path))
    if names and not (recursive and not patterns.matches_all(pattern)):
        return
    for path in sorted(folders):
        if not (recursive and any(path.startswith(f"{each}/") for each in folders)):
            inner = storage.join(folder, path)
            yield from _list_folder(inner, recursive=recursive, may_be_empty=bool(names))


def _list_folder(name: str, *, recursive: bool, may_be_empty: bool = False) -> Iterator[Entry]:
    """List the pictures and tables of a folder, but not the results of a run."""
    found = _found_in(name, recursive=recursive)
    paths = sorted(each.path for each in found if each.is_file and _is_supported(each.path))
    runs, plans = (
        {PurePosixPath(each.path).parent for each in found if each.base_name == file}
        for file in (RUN, PLAN)
    )
    paths = [each for each in paths if PurePosixPath(each).parent not in runs & plans]
    if archives := sum(map(_is_archive, found)):
        bare, options = storage.split_options(name)
        warn_about_other_files(name, f"{archives} .tar file(s)", f"'{bare.rstrip('/')}/*{options}'")
    left_out = LeftOut()
    for each in found:
        if each.is_file:
            left_out.add(PurePosixPath(each.path).name)
    left_out.warn(name)
    if not (paths or may_be_empty):
        yield Entry(name, problem=f"{shown(name)}: has no pictures")
    for path in paths:
        yield from _list_file(storage.join(name, path))


def _list_file_of_store(name: str) -> Iterator[Entry]:
    kind = media.kind_of(storage.split_options(name)[0])
    return _list_item(Media(name, kind))


def _found_in(folder: str, *, recursive: bool) -> list[pyarrow.fs.FileInfo]:
    files, path = storage.locate(folder)
    selector = pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    found: list[pyarrow.fs.FileInfo] = files.get_file_info(selector)
    return found


def _is_supported(path: str) -> bool:
    name = PurePosixPath(path)
    return is_picture(name.name) or name.suffix.lower() in _TABLES


def _is_archive(info: pyarrow.fs.FileInfo) -> bool:
    return bool(info.is_file and PurePosixPath(info.path).suffix.lower() == archive.SUFFIX)


# ---------------------------------------------------------------- in Parquet files


def _list_table(name: str) -> Iterator[Entry]:
    """List the row groups of a Parquet file; the workers read their rows."""
    try:
        with _open_table(name) as file:
            counts = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
            columns = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        problem = f"{shown(name)}: table: cannot be read: {storage.reason(error)}"
        yield Entry(name, problem=problem)
        return
    try:
        picture_column(columns)
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from None
    first = 0
    for number, count in enumerate(counts):
        if count:
            yield Entry(name, count, number, first)
        first += count


def _read_rows(entry: Entry, row_group: int) -> Iterator[tuple[str, Wanted]]:
    """Yield the pictures of a row group; after a read error, an ImageError for each missing row."""
    done = 0
    try:
        with _open_table(entry.name) as file:
            columns = file.schema_arrow.names
            column = picture_column(columns)
            used = [each for each in ("path", column) if each in columns]
            for batch in file.iter_batches(_ROWS_PER_READ, row_groups=[row_group], columns=used):
                for row in batch.to_pylist():
                    number = f"{entry.name}#{entry.first + done}"
                    done += 1
                    yield _read_row(row[column], row.get("path"), number, entry.name)
    except (OSError, pa.ArrowException) as error:
        problem = f"{shown(entry.name)}: table: cannot be read: {storage.reason(error)}"
        for at in range(entry.first + done, entry.first + entry.pictures):
            yield f"{entry.name}#{at}", ImageError(problem)


def _read_row(value: object, path: object, number: str, table: str) -> tuple[str, Wanted]:
    """Return the name of a row's picture (its path, or else its number) and the picture."""
    if isinstance(value, str):
        value = storage.resolve(table, value)
        return value, open_lazily(value)
    name, picture = to_picture(value, path if isinstance(path, str) else None)
    return (name, picture) if name else to_picture(value, number)  # type: ignore[return-value]


# ---------------------------------------------------------------- in .tar files


def _list_archive(name: str) -> Iterator[Entry]:
    """List the parts of a .tar file; the workers read them."""
    found = False
    try:
        with _open_file(name) as file:
            for offset, pictures in archive.extents(name, file):
                found = True
                yield Entry(name, pictures, offset=offset)
    except (*archive.ERRORS, pa.ArrowException) as error:
        problem = f"{shown(name)}: archive: cannot be read: {storage.reason(error)}"
        yield Entry(name, problem=problem)
        return
    if not found:
        yield Entry(name, problem=f"{shown(name)}: archive: has no pictures")


def _read_members(entry: Entry, offset: int) -> Iterator[tuple[str, Wanted]]:
    """Yield the pictures of a part; after a read error, an ImageError for each missing one."""
    done = 0
    try:
        with _open_file(entry.name) as file:
            for path, picture in archive.read(
                entry.name, file, archive.Extent(offset, entry.pictures)
            ):
                done += 1
                yield f"{entry.name}#{path}", picture
    except (*archive.ERRORS, pa.ArrowException) as error:
        problem = f"{shown(entry.name)}: archive: cannot be read: {storage.reason(error)}"
        for at in range(done, entry.pictures):
            yield f"{entry.name}#{at}", ImageError(problem)


def _open_file(name: str) -> pa.NativeFile:
    files, path = storage.locate(name)
    return files.open_input_file(path)


def _open_table(name: str) -> pyarrow.parquet.ParquetFile:
    files, path = storage.locate(name)
    return pyarrow.parquet.ParquetFile(path, filesystem=files)
