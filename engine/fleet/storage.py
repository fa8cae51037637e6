"""Files and folders on disks and in the stores of PyArrow and fsspec (s3://, gs://, hdfs://, …)."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from engine.errors import InputError
from engine.files import part_names
from engine.files.naming import line_of, shown
from engine.sources import media

_OPTIONS = re.compile(r"\?\w+=[^?]*$")  # after a name: ?region=…&endpoint_override=…
# Writes to these stores are atomic; elsewhere a temporary file is written and renamed.
_ATOMIC_STORES = ("s3", "gcs", "abfs")


def is_remote(name: str) -> bool:
    """Return whether `name` is in a store, unlike URLs of cameras and web servers."""
    return "://" in name and not media.is_url(name)


def locate(name: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system that holds `name`, and its path there."""
    if not is_remote(name):
        return _disk(), os.path.abspath(name)  # noqa: PTH100 - a name need not be a valid Path
    bare, options = split_options(name)
    scheme, _, rest = bare.partition("://")
    host, _, path = rest.partition("/")
    files, root = _store(f"{scheme}://{host}/{options}")
    return files, f"{root.rstrip('/')}/{path}".rstrip("/")


def resolve(name: str, other: str) -> str:
    """Return `other` resolved relative to the folder of the file `name`."""
    if media.is_url(other) or is_remote(other) or other.startswith("/"):
        return other
    bare, options = split_options(name)
    return f"{bare.rpartition('/')[0]}/{other}{options}"


def join(folder: str, path: str) -> str:
    """Return the full name of the file that the file system of `folder` lists as `path`."""
    bare, options = split_options(folder)
    return f"{bare.rstrip('/')}{path.removeprefix(locate(folder)[1])}{options}"


def has_pattern(name: str) -> bool:
    """Return whether a store's name has a wildcard after its host."""
    return glob.has_magic("/".join(_parts_of(name)[3:]))


def split_pattern(name: str) -> tuple[str, str]:
    """Return the folder before the first part with a wildcard, and the rest without options."""
    parts = _parts_of(name)
    fixed = next(at for at, part in enumerate(parts[3:], 3) if glob.has_magic(part))
    return "/".join(parts[:fixed]) + split_options(name)[1], "/".join(parts[fixed:])


def _parts_of(name: str) -> list[str]:
    """Return the scheme, an empty string, the host and the parts of the path."""
    return split_options(name)[0].split("/")


def reason(error: Exception) -> str:
    """Return PyArrow's message on one line."""
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return line_of(error)


class Folder:
    """A folder, created when its first file is written.

    `name` is made absolute, because workers have other working directories.
    """

    def __init__(self, name: str) -> None:
        self.name = name if is_remote(name) else os.path.abspath(name)  # noqa: PTH100
        with self._translate_errors("opened"):
            self._files, self._path = locate(name)

    def names(self) -> set[str]:
        """Return the names of all files except hidden ones, which may be incomplete."""
        selector = pyarrow.fs.FileSelector(self._path, allow_not_found=True)
        with self._translate_errors("read"):
            found = self._files.get_file_info(selector)
        return {each.base_name for each in found if not each.base_name.startswith(".")}

    def has(self, name: str) -> bool:
        with self._translate_errors("read"):
            found = self._files.get_file_info(f"{self._path}/{name}")
        return bool(found.type == pyarrow.fs.FileType.File)

    def open(self, name: str) -> pa.NativeFile:
        with self._translate_errors("read"):
            return self._files.open_input_file(f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        with self._translate_errors("read"), self.open(name) as file:
            content: bytes = file.read()
            return content

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a file atomically; on a disk, remove unfinished files of killed workers."""
        is_atomic = self._files.type_name in _ATOMIC_STORES
        part = name if is_atomic else part_names.make()
        with self._translate_errors("written"):
            if not is_atomic:
                self._files.create_dir(self._path)
            if self._files.type_name == "local":
                part_names.remove_abandoned(Path(self._path))
            with self._files.open_output_stream(f"{self._path}/{part}") as file:
                file.write(content)
            if not is_atomic:
                self._files.move(f"{self._path}/{part}", f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        with self._translate_errors("deleted"):
            self._files.delete_file(f"{self._path}/{name}")

    @contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            message = f"{shown(self.name)}: cannot be {action}: {reason(error)}"
            raise InputError(message) from None


def split_options(name: str) -> tuple[str, str]:
    """Return a name without its options, and the options."""
    options = _OPTIONS.search(name) if is_remote(name) else None
    return (name[: options.start()], options[0]) if options else (name, "")


@lru_cache(1)
def _disk() -> pyarrow.fs.FileSystem:
    return pyarrow.fs.LocalFileSystem()


@lru_cache(64)
def _store(root: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a store, connected once for all its files, and its root."""
    try:
        files, path = pyarrow.fs.FileSystem.from_uri(root)
    except pa.ArrowInvalid:  # not supported by PyArrow itself
        import fsspec

        try:
            file_system, path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise OSError(reason(error)) from None
        files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(file_system))
    return files, path
