"""Folders and files wherever PyArrow or fsspec reach: disks, s3://, gs://, hdfs:// and so on."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import pyarrow as pa
import pyarrow.fs

from engine.errors import InputError
from engine.files.naming import shown
from engine.sources import media

_OPTIONS = re.compile(r"\?\w+=[^?]*$")  # behind a name: ?region=…&endpoint_override=…
# a file is there when all of it is; elsewhere it is written beside its place first
_WHOLE = ("s3", "gcs", "abfs")


def is_remote(name: str) -> bool:
    """Whether it is a name in a store; what cameras and web servers have is not."""
    return "://" in name and not media.is_url(name)


def locate(name: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system, and the path in it."""
    if not is_remote(name):
        return _disk(), os.path.abspath(name)  # noqa: PTH100 - a name need not be a Path's
    bare, options = _split(name)
    scheme, _, rest = bare.partition("://")
    host, _, path = rest.partition("/")
    files, root = _store(f"{scheme}://{host}/{options}")
    return files, f"{root.rstrip('/')}/{path}".rstrip("/")


def beside(name: str, other: str) -> str:
    """What `other` means in a file of this name: relative to its folder."""
    if media.is_url(other) or is_remote(other) or other.startswith("/"):
        return other
    bare, options = _split(name)
    return f"{bare.rpartition('/')[0]}/{other}{options}"


def inside(name: str, path: str) -> str:
    """The name of the file that its file system calls `path`; `name` is a folder it lies in."""
    bare, options = _split(name)
    return f"{bare.rstrip('/')}{path.removeprefix(locate(name)[1])}{options}"


def reason(error: Exception) -> str:
    """PyArrow's words, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return shown(" ".join(str(error).split())) or type(error).__name__


class Folder:
    """Files in a folder that is made when the first one is written.

    `name` is absolute: workers start in folders of their own.
    """

    def __init__(self, name: str) -> None:
        self.name = name if is_remote(name) else os.path.abspath(name)  # noqa: PTH100
        with self._told("opened"):
            self._files, self._path = locate(name)

    def names(self) -> set[str]:
        """Without hidden ones, which may be half written."""
        wanted = pyarrow.fs.FileSelector(self._path, allow_not_found=True)
        with self._told("read"):
            found = self._files.get_file_info(wanted)
        return {each.base_name for each in found if not each.base_name.startswith(".")}

    def has(self, name: str) -> bool:
        with self._told("read"):
            found = self._files.get_file_info(f"{self._path}/{name}")
        return bool(found.type == pyarrow.fs.FileType.File)

    def open(self, name: str) -> pa.NativeFile:
        with self._told("read"):
            return self._files.open_input_file(f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        with self._told("read"), self.open(name) as file:
            content: bytes = file.read()
            return content

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """The file appears at once and whole."""
        is_whole = self._files.type_name in _WHOLE
        part = name if is_whole else f".{name}.{uuid.uuid4().hex}.part"
        with self._told("written"):
            if not is_whole:
                self._files.create_dir(self._path)
            with self._files.open_output_stream(f"{self._path}/{part}") as file:
                file.write(content)
            if not is_whole:
                self._files.move(f"{self._path}/{part}", f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        with self._told("deleted"):
            self._files.delete_file(f"{self._path}/{name}")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            message = f"{shown(self.name)}: cannot be {what}: {reason(error)}"
            raise InputError(message) from None


def _split(name: str) -> tuple[str, str]:
    """A name in a store, and the options behind it."""
    options = _OPTIONS.search(name) if is_remote(name) else None
    return (name[: options.start()], options[0]) if options else (name, "")


@lru_cache(1)
def _disk() -> pyarrow.fs.FileSystem:
    return pyarrow.fs.LocalFileSystem()


@lru_cache(64)
def _store(root: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Connected once, however many files it has."""
    try:
        files, path = pyarrow.fs.FileSystem.from_uri(root)
    except pa.ArrowInvalid:  # none of PyArrow's own
        import fsspec

        try:
            known, path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise OSError(reason(error)) from None
        files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(known))
    return files, path
