"""Backups of files that outputs replace, until all names have arrived on stdin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli._kept_file import KeptFile
from engine.cli._output_files import ReservedPaths
from engine.cli._sinks.base import Sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.cli._output_names import OutputNames
    from engine.sources.item import Item


class Kept(Sink):
    """Restores a file whose name arrives on stdin after an output has replaced it.

    If a run fails before it has read a picture, all files are restored. Until all names have
    arrived, the records say that any output may be replaced. This sink begins before the others.
    """

    def __init__(self, reserved: ReservedPaths, naming: OutputNames | None) -> None:
        self._reserved = reserved
        self._naming = naming  # None without output folders
        self._files: dict[str, KeptFile] = {}
        self._has_results = self._is_cut_short = False

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        if self._naming:
            self._naming.reopen_all()
        for path in sorted(self._reserved.at_stake):
            self._files[path] = KeptFile(path)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._has_results = True

    def cut_short(self) -> None:
        self._is_cut_short = True

    def finish(self) -> None:
        for file in self._files.values():
            file.remove()
        if self._naming and not self._is_cut_short:
            self._naming.close_all()

    def discard(self) -> None:
        for path, file in self._files.items():
            if path in self._reserved.refused or not self._has_results:
                file.put_back()
            else:
                file.remove()
        if self._naming and not (self._has_results or self._is_cut_short):  # all were restored
            self._naming.close_all()
