"""--save-txt: a YOLO label file for each picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.cli._output_files import ReservedPaths, UniqueNames, is_folder_of, make_folder
from engine.cli._sinks import file_names
from engine.cli._sinks.base import Sink
from engine.errors import InputError
from engine.evaluate.dataset import all_labels
from engine.files.naming import shown
from engine.sources.item import Item


class Labels(Sink):
    """Label files in a folder; a picture without boxes gets an empty one."""

    def __init__(
        self,
        folder: str,
        reserved: ReservedPaths,
        pictures: Iterable[str],
        *,
        with_score: bool,
        overwrite: bool,
    ) -> None:
        self._folder = make_folder("--save-txt", folder)
        self._names = UniqueNames(self._folder, reserved, overwrite=overwrite)
        self._with_score = with_score
        self._written: set[str] = set()
        self._overwrite = overwrite
        for picture in pictures:
            self._protect_labels_of(picture)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        if not item.frame:
            self._protect_labels_of(item.name)
        content = outcome.to_yolo(conf=self._with_score).encode()
        with self._names.new_file(f"{file_names.stem_of(item)}.txt", source=item.name) as file:
            file.part.write_bytes(content)
        self._written.add(file.path.name)

    def _protect_labels_of(self, picture: str) -> None:
        """Refuse to overwrite the existing labels of a picture, which may be ground truth."""
        if not self._overwrite:
            return
        has_labels_here = any(
            is_folder_of(self._folder, str(labels)) and labels.name not in self._written
            for labels in all_labels(Path(picture))
        )
        if has_labels_here or is_folder_of(self._folder, picture):
            where = f"--save-txt {shown(str(self._folder))}"
            problem = f"with --overwrite would replace labels of {shown(picture)}"
            raise InputError(f"{where}: {problem}. Name another folder")
