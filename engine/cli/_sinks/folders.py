"""--save-txt and --crops: files for each picture, in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.cli._sinks import naming
from engine.cli._sinks.base import Sink
from engine.cli._targets import NewNames, Taken, is_folder_of, make_folder
from engine.errors import InputError
from engine.evaluate.dataset import all_labels
from engine.files.naming import shown
from engine.sources.item import Item
from engine.vision.encode import encode


class Labels(Sink):
    """YOLO's label files; a picture without boxes gets an empty one."""

    def __init__(
        self,
        folder: str,
        taken: Taken,
        pictures: Iterable[str],
        *,
        with_score: bool,
        overwrite: bool,
    ) -> None:
        self._folder = make_folder("--save-txt", folder)
        self._names = NewNames(self._folder, taken, overwrite=overwrite)
        self._with_score = with_score
        self._written: set[str] = set()
        self._overwrite = overwrite
        for picture in pictures:
            self._refuse_beside(picture)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        if not item.frame:
            self._refuse_beside(item.name)
        content = outcome.to_yolo(conf=self._with_score).encode()
        with self._names.new_file(f"{naming.stem_of(item)}.txt", source=item.name) as file:
            file.part.write_bytes(content)
        self._written.add(file.path.name)

    def _refuse_beside(self, picture: str) -> None:
        """Labels that a picture has may be somebody's work."""
        if not self._overwrite:
            return
        theirs = any(
            is_folder_of(self._folder, str(labels)) and labels.name not in self._written
            for labels in all_labels(Path(picture))
        )
        if theirs or is_folder_of(self._folder, picture):
            where = f"--save-txt {shown(str(self._folder))}"
            problem = f"with --overwrite would replace labels of {shown(picture)}"
            raise InputError(f"{where}: {problem}. Name another folder")


class Crops(Sink):
    """What was found, cut out, in a folder for each label."""

    def __init__(self, folder: str, taken: Taken, *, overwrite: bool) -> None:
        self._folder = make_folder("--crops", folder)
        self._taken = taken
        self._overwrite = overwrite
        self._names: dict[str, NewNames] = {}

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        for found, image in outcome.crops():
            wanted = naming.name_of(item, image.size)
            content = encode(image, wanted)
            with self._names_for(found.label).new_file(wanted, source=item.name) as file:
                file.part.write_bytes(content)

    def _names_for(self, label: str) -> NewNames:
        name = naming.folder_name_of(label)
        if name not in self._names:
            folder = make_folder("--crops", str(Path(self._folder) / name))
            self._names[name] = NewNames(folder, self._taken, overwrite=self._overwrite)
        return self._names[name]
