"""Text output to stdout, to a file that appears when it is complete, or line by line to a file."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from engine.cli._output_files import Existing, unused_path
from engine.errors import InputError
from engine.files import locks
from engine.files.atomic import NewFile, is_stdout, unwritable
from engine.files.naming import shown


class TextOutput:
    """An output stream; with `incremental` every write is visible immediately.

    `-` and /dev/stdout are stdout.
    """

    def __init__(self, path: str, *, existing: Existing, incremental: bool) -> None:
        self.is_stdout = is_stdout(path)
        self._path = Path(path)
        self._incremental = incremental
        replaces = existing == "replace"
        self._file = NewFile(path, overwrite=replaces, another=lambda: unused_path(self._path))
        # append mode: another run may be writing the file, so it is truncated once locked
        self._mode = "a" if replaces or (existing == "resume" and self._path.is_file()) else "x"
        self._out: IO[Any] = sys.stdout
        self._is_locked = False
        self._is_unused = False  # created by this run, and still without results
        self._written_bytes = 0

    def lock(self) -> None:
        """Lock an incremental file against other runs, without changing it."""
        if self.is_stdout or self._file.is_direct or not self._incremental:
            return
        try:
            is_new = not self._path.exists()
            self._out = self._path.open(self._mode, **_TEXT)
            locks.lock(self._out, self._path)
            size = os.fstat(self._out.fileno()).st_size
            if self._mode == "x" and size:  # another run was faster to lock the new file
                raise locks.busy(self._path)
            self._is_unused = is_new and not size
        except FileExistsError:  # created since this run began
            raise locks.busy(self._path) from None
        except OSError as error:
            raise unwritable(self._path, error) from None
        self._is_locked = True

    def open(self, keep: int = 0) -> None:
        """Open the output, and continue after `keep` bytes of the existing file."""
        if self.is_stdout:
            if sys.__stdout__ is None:  # closed, and sys.stdout is a null stream
                raise unwritable("-", OSError(errno.EBADF, os.strerror(errno.EBADF)))
            if isinstance(sys.stdout, io.TextIOWrapper):  # UTF-8, as in files
                sys.stdout.reconfigure(encoding="utf-8", errors=ENCODING_ERRORS)
            return
        if not self._is_locked:
            self.lock()
        try:
            if self._is_locked:
                if not keep and os.fstat(self._out.fileno()).st_nlink > 1:
                    self._leave_other_links()
                os.ftruncate(self._out.fileno(), keep)
                self._written_bytes = keep
            else:
                self._out = self._file.open("w", **_TEXT)
        except OSError as error:
            raise unwritable(self._path, error) from None

    def _leave_other_links(self) -> None:
        """Start a new file, so that other hard links keep their content."""
        old, target = self._out, Path(os.path.realpath(self._path))
        target.unlink()
        self._out = target.open("x", **_TEXT)
        locks.lock(self._out, target)
        old.close()

    def write(self, text: str, *, is_result: bool = True) -> None:
        try:
            self._out.write(text)
            if self._incremental:
                self._out.flush()
                self._written_bytes += len(text.encode(errors=ENCODING_ERRORS))
            self._is_unused = self._is_unused and not is_result
        except OSError as error:
            self._fail(error)

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a range of bytes of an incremental file, keeping the bytes after it."""
        try:
            with self._path.open("r+b") as file:
                file.seek(end)
                rest = file.read()
                file.seek(start)
                file.write(text.encode(errors=ENCODING_ERRORS) + rest)
                self._written_bytes = file.tell()
                file.truncate()
        except OSError as error:
            raise unwritable(self._path, error) from None

    def keep(self) -> None:
        self._is_unused = False
        try:
            self._out.flush()
            if not self.is_stdout:
                self._out.close()
        except OSError as error:
            self._fail(error)
        if not (self.is_stdout or self._incremental):
            self._file.keep()
            if self._file.path != self._path:
                problem = f"exists by now. The results are in {shown(str(self._file.path))}"
                raise InputError(f"{shown(str(self._path))}: {problem}")

    def discard(self) -> None:
        """Remove an incomplete file, but keep an incremental one that has results."""
        if self._out is not sys.stdout:
            with suppress(OSError):  # closing flushes, which fails again after a failed write
                self._out.close()
            if not self._incremental:
                self._file.discard()
            elif self._is_unused:
                Path(os.path.realpath(self._path)).unlink(missing_ok=True)

    def _fail(self, error: OSError) -> None:
        if self.is_stdout:
            raise error  # engine.cli.main() handles a closed pipe
        self.discard()
        if self._incremental and not self._file.is_direct and self._path.is_file():
            with suppress(OSError):
                os.truncate(self._path, self._written_bytes)  # keep only whole writes
        raise unwritable(self._path, error) from None


ENCODING_ERRORS = "backslashreplace"  # for undecodable bytes of file names
# newline="" because csv writes its own line endings
_TEXT: dict[str, Any] = {"encoding": "utf-8", "newline": "", "errors": ENCODING_ERRORS}
