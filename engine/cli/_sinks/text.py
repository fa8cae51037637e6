"""Text for stdout or a file: one that appears when it is complete, or one that grows."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from engine.cli import _targets
from engine.errors import InputError
from engine.files.atomic import NewFile, unwritable
from engine.files.naming import shown


class TextOut:
    """`-` is stdout; with `grows` every write can be read at once."""

    def __init__(self, path: str, *, overwrite: bool, grows: bool) -> None:
        self.is_stdout = path == "-"
        self._path = Path(path)
        self._grows = grows
        self._file = NewFile(path, overwrite=overwrite, another=self._another)
        replaces = overwrite or not grows or (self._path.exists() and not self._path.is_file())
        self._mode = "w" if replaces else "x"
        self._out: IO[Any] = sys.stdout
        self._whole = 0  # bytes that have been written

    def open(self) -> None:
        if self.is_stdout:
            if isinstance(sys.stdout, io.TextIOWrapper):  # as in a file, whatever terminals show
                sys.stdout.reconfigure(encoding="utf-8", errors=_STRAY)
            return
        path = self._path if self._grows else self._file.part
        try:
            # csv writes its own line ends
            self._out = path.open(self._mode, encoding="utf-8", newline="", errors=_STRAY)
        except OSError as error:
            raise unwritable(self._path, error) from None

    def write(self, text: str) -> None:
        try:
            self._out.write(text)
            if self._grows:
                self._out.flush()
                self._whole += len(text.encode(errors=_STRAY))
        except OSError as error:
            self._refuse(error)

    def keep(self) -> None:
        try:
            self._out.flush()
            if not self.is_stdout:
                self._out.close()
        except OSError as error:
            self._refuse(error)
        if not (self.is_stdout or self._grows):
            self._file.keep()
            if self._file.path != self._path:
                told = f"exists by now. The results are in {shown(str(self._file.path))}"
                raise InputError(f"{shown(str(self._path))}: {told}")

    def _another(self) -> Path:
        """Another run has just written the file: what this one found is not thrown away."""
        names = _targets.NewNames(self._path.parent, _targets.Taken([]), overwrite=False)
        return names.place(self._path.name, source=str(self._path))

    def discard(self) -> None:
        """Remove what is not complete; what grows stays as far as it has grown."""
        if self._out is not sys.stdout:
            with suppress(OSError):  # what could not be written before, cannot be now
                self._out.close()
            if not self._grows:
                self._file.discard()

    def _refuse(self, error: OSError) -> None:
        if self.is_stdout:
            raise error  # a closed pipe is the command line's to judge
        self.discard()
        if self._grows and self._path.is_file():
            with suppress(OSError):
                os.truncate(self._path, self._whole)  # the rows before are good
        raise unwritable(self._path, error) from None


_STRAY = "backslashreplace"  # bytes of file names that are no text
