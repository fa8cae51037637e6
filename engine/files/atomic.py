"""Write files atomically, and never overwrite one unless asked to."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from engine.errors import EngineError, InputError
from engine.files import part_names
from engine.files.naming import shown

_DISK_TROUBLE = {errno.ENOSPC, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_HARD_LINKS = {
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EXDEV,
}
_UNASKED = "Name another, or pass overwrite=True"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # a Path turns // into /
_SLASH = r"/+(?:\./+)*"
_STREAM = re.compile(
    rf"{_SLASH}dev{_SLASH}(?:stdout|stderr|fd{_SLASH}[0-9]{{1,9}})"
    rf"|{_SLASH}proc{_SLASH}(self|thread-self|[0-9]+)(?:{_SLASH}task{_SLASH}[0-9]+)?"
    rf"{_SLASH}fd{_SLASH}[0-9]{{1,9}}"
)
_MAX_LINKS = 40  # Linux's limit
_NUMBERS = {"stdout": 1, "stderr": 2}


class NewFile:
    """A file under construction: write `part`; the end of the `with` block renames it to `path`.

    After an error the part is removed. A device, a pipe or a stream such as /dev/stdout is written
    directly; use open(). With `overwrite`, the target of a symbolic link is replaced and the link
    kept; without `follows_link`, the link itself is replaced. If `path` has been created meanwhile,
    `another` supplies the next name to try.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        follows_link: bool = True,
        hint: str = _UNASKED,
        another: Callable[[], Path] | None = None,
    ) -> None:
        refuse_address(path)
        self.path = Path(path)
        self._another = another
        self._overwrite = overwrite
        self._hint = hint
        if "\0" in str(path):
            raise InputError(f"{shown(str(path))}: cannot be written: the name contains a NUL")
        try:
            self._stream = stream_number(path, follows_link=follows_link)
            is_device = self.path.exists() and not self.path.is_file()
            self.is_direct = is_device or self._stream is not None
        except OSError as error:  # for example, the name is too long
            raise unwritable(self.path, error) from None
        self._target = self.path
        if overwrite and follows_link and self.path.is_symlink():
            self._target = Path(os.path.realpath(self.path))
        self.part = self.path if self.is_direct else self._target.with_name(part_names.make())
        if not self.is_direct:
            part_names.remove_abandoned(self._target.parent)

    def open(self, mode: str, **options: Any) -> IO[Any]:
        """Open the part, or the device, pipe or stream."""
        if self._stream is None:
            return self.part.open(mode, **options)
        check_stream(self._stream)
        if sys.stdout is not None:
            sys.stdout.flush()  # earlier output comes first
        # Opening by name would truncate a file, to which the shell may want to append.
        return os.fdopen(os.dup(self._stream), mode, **options)

    def keep(self) -> None:
        """Rename the part to its final name."""
        if self.is_direct:
            return
        try:
            if self._overwrite:
                with suppress(OSError):  # keep the target's mode, if it exists
                    self.part.chmod(self._target.stat().st_mode & 0o777)
                self.part.replace(self._target)
            else:
                self._publish()
        except FileExistsError:
            self.discard()
            raise InputError(f"{shown(str(self.path))}: exists already. {self._hint}") from None
        except OSError as error:
            self.discard()
            raise unwritable(self.path, error) from None

    def _publish(self) -> None:
        """Rename the part to `path`, or to the next free name, without replacing a file."""
        while True:
            try:
                rename_new(self.part, self.path)
            except FileExistsError:
                if self._another is None:
                    raise
                self.path = self._another()
            else:
                return

    def discard(self) -> None:
        if not self.is_direct:
            with suppress(OSError):  # on a read-only file system there is no part
                self.part.unlink()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.keep()
            return
        self.discard()
        if isinstance(error, OSError):
            raise unwritable(self.path, error) from None


def stream_number(path: str | Path, *, follows_link: bool = True) -> int | None:
    """Return the descriptor of a stream such as /dev/stdout, which may be redirected to a file.

    A link to a stream counts, too: resolving it fully would give the file.
    """
    name = str(path)
    if os.name == "nt":
        return None
    for _ in range(_MAX_LINKS if follows_link else 1):
        if (number := _number_in(name)) is not None:
            return number
        try:
            target = os.readlink(name)  # noqa: PTH115 - of millions of names
        except (OSError, ValueError):  # not a link, or a NUL in the name
            return None
        folder = os.path.realpath(os.path.dirname(name) or ".")  # noqa: PTH120
        if (number := _number_in(f"{folder}/{os.path.basename(name)}")) is not None:  # noqa: PTH119
            return number
        name = os.path.join(folder, target)  # noqa: PTH118
    return None


def _number_in(name: str) -> int | None:
    """Return the descriptor in a name like /proc/N/fd/1, if this process has or shares it."""
    found = _STREAM.fullmatch(name)
    if not found:
        return None
    last = name.rpartition("/")[2]
    number = _NUMBERS[last] if last in _NUMBERS else int(last)
    process = found[1] or "self"
    is_own = not process.isdecimal() or int(process) == os.getpid()
    return number if is_own or _is_shared(name, number) else None


def _is_shared(name: str, number: int) -> bool:
    """Return whether a stream of another process, such as the shell, is the same file as here."""
    try:
        return os.path.samestat(os.stat(name), os.fstat(number))  # noqa: PTH116
    except (OSError, OverflowError):
        return False


def is_stdout(path: str | Path) -> bool:
    """Return whether an output goes to stdout, as `-` or by the stream's name."""
    return str(path) == "-" or stream_number(path) == _NUMBERS["stdout"]


def check_stream(number: int) -> None:
    """Raise an OSError if a descriptor is not open for writing."""
    import fcntl  # not on Windows

    # If the stream was closed when Python started, its number may belong to any other file.
    if (number, None) in ((1, sys.__stdout__), (2, sys.__stderr__)):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "is open for reading only")


def refuse_existing(path: Path) -> None:
    """Raise NewFile's error if a file exists that must not be replaced."""
    if os.path.lexists(path):
        raise InputError(f"{shown(str(path))}: exists already. {_UNASKED}")


def rename_new(source: Path, target: Path) -> None:
    """Rename a file, or raise FileExistsError if `target` exists.

    The target appears complete: creating a hard link is atomic, and so is a rename on Windows,
    which never replaces a file. Without hard links, an empty file is created and then replaced.
    """
    if os.name == "nt":
        source.rename(target)
        return
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        target.open("xb").close()
        try:
            source.replace(target)
        except BaseException:  # including an interrupt
            target.unlink(missing_ok=True)
            raise
        return
    source.unlink()


def write_new(
    path: str | Path,
    content: bytes,
    *,
    overwrite: bool = False,
    follows_link: bool = True,
    hint: str = _UNASKED,
) -> None:
    """Write a file that appears under its name only once it is complete."""
    new = NewFile(path, overwrite=overwrite, follows_link=follows_link, hint=hint)
    with new as file, file.open("wb") as out:
        out.write(content)


def unwritable(path: str | Path, error: OSError) -> EngineError:
    """Return an InputError, or an EngineError if the disk is at fault."""
    kind = EngineError if error.errno in _DISK_TROUBLE else InputError
    return kind(f"{shown(str(path))}: cannot be written: {error.strerror or error}")


def refuse_address(path: str | Path) -> None:
    """Refuse URLs like s3://bucket/x, which would create a local folder named s3:."""
    if _ADDRESS.match(str(path)):
        problem = (
            "expected a path on this machine, got an address. Only --out of --ray writes to one"
        )
        raise InputError(f"{shown(str(path))}: {problem}")


def make_folder(path: str | Path) -> None:
    """Create a folder and those above it, unless they exist."""
    refuse_address(path)
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            problem = "expected a folder, got a file or a path below one. Name another folder"
            raise InputError(f"{shown(str(path))}: {problem}") from None
        if isinstance(error, OSError):
            raise unwritable(path, error) from None
        raise InputError(f"{shown(str(path))}: cannot be written: {error}") from None
