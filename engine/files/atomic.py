"""Write files atomically, and never overwrite one unless asked to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from engine.errors import EngineError, InputError
from engine.files.naming import shown

_DISK_TROUBLE = {errno.ENOSPC, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_UNASKED = "Name another, or pass overwrite=True"


class NewFile:
    """A file under construction: write `part`; the end of the `with` block renames it to `path`.

    After an error the part is removed. A device or pipe, such as /dev/stdout, is written directly.
    If `path` has appeared meanwhile, `another` supplies the next name to try.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        hint: str = _UNASKED,
        another: Callable[[], Path] | None = None,
    ) -> None:
        self.path = Path(path)
        self._another = another
        self._overwrite = overwrite
        self._hint = hint
        if "\0" in str(path):
            raise InputError(f"{shown(str(path))}: cannot be written: a name has no NUL")
        try:
            self._is_direct = self.path.exists() and not self.path.is_file()
        except OSError as error:  # too long, for instance
            raise unwritable(self.path, error) from None
        # Unique: process numbers repeat across containers that share a folder.
        name = f".{uuid4().hex}.part"
        self.part = self.path if self._is_direct else self.path.with_name(name)

    def keep(self) -> None:
        """Rename the part to its final name."""
        if self._is_direct:
            return
        is_reserved = False
        try:
            if not self._overwrite:
                self._reserve()
                is_reserved = True
            self.part.replace(self.path)
        except OSError as error:
            self.discard()
            if is_reserved:
                with suppress(OSError):
                    self.path.unlink()
            elif isinstance(error, FileExistsError):
                raise InputError(f"{shown(str(self.path))}: exists already. {self._hint}") from None
            raise unwritable(self.path, error) from None

    def _reserve(self) -> None:
        while True:
            try:
                self.path.open("xb").close()  # reserves the name
            except FileExistsError:
                if self._another is None:
                    raise
                self.path = self._another()
            else:
                return

    def discard(self) -> None:
        if not self._is_direct:
            with suppress(OSError):  # nothing was written to a read-only file system
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


def write_new(
    path: str | Path, content: bytes, *, overwrite: bool = False, hint: str = _UNASKED
) -> None:
    """Write a file that appears under its name only when it is complete."""
    with NewFile(path, overwrite=overwrite, hint=hint) as file:
        file.part.write_bytes(content)


def unwritable(path: str | Path, error: OSError) -> EngineError:
    """Return an InputError, or an EngineError if the disk is at fault."""
    kind = EngineError if error.errno in _DISK_TROUBLE else InputError
    return kind(f"{shown(str(path))}: cannot be written: {error.strerror or error}")
