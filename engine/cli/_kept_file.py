"""Keep a backup of a file that a run replaces, in case it turns out to be an input."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.files.atomic import NewFile, unwritable
from engine.files.real_paths import real
from engine.outputs.record import files_in, forget_file


class KeptFile:
    """A second hard link to a file, so that the file can be restored."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(real(path))
        self._was_output = self._is_output()
        self._link = NewFile(self._path, overwrite=True)
        try:
            try:
                os.link(self._path, self._link.part)
            except OSError:  # a file system without hard links
                shutil.copy2(self._path, self._link.part)
        except OSError as error:
            raise unwritable(path, error) from None

    def put_back(self) -> None:
        self._link.keep()
        self._link.discard()  # renaming one link of a file to another does nothing
        if self._is_output() and not self._was_output:
            forget_file(self._path)

    def remove(self) -> None:
        self._link.discard()

    def _is_output(self) -> bool:
        return self._path.name in files_in(str(self._path.parent))
