"""--save-txt and --crops: files for each picture, in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.cli._sinks import naming
from engine.cli._sinks.base import Sink
from engine.cli._targets import HINT, NewNames, make_folder
from engine.sources.item import Item
from engine.vision.encode import encode
from engine.vision.new_file import write_new


class Labels(Sink):
    """YOLO's label files; a picture without boxes gets an empty one."""

    def __init__(
        self, folder: str, inputs: Iterable[str], *, with_score: bool, overwrite: bool
    ) -> None:
        self._names = NewNames(make_folder("--save-txt", folder), inputs, overwrite=overwrite)
        self._with_score = with_score
        self._overwrite = overwrite

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        path = self._names.place(f"{naming.stem_of(item)}.txt", source=item.name)
        content = outcome.to_yolo(conf=self._with_score).encode()
        write_new(path, content, overwrite=self._overwrite, hint=HINT)


class Crops(Sink):
    """What was found, cut out, in a folder for each label."""

    def __init__(self, folder: str, inputs: Iterable[str], *, overwrite: bool) -> None:
        self._folder = make_folder("--crops", folder)
        self._inputs = tuple(inputs)
        self._overwrite = overwrite
        self._names: dict[str, NewNames] = {}

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        for found, image in outcome.crops():
            wanted = naming.stem_of(item) + naming.suffix_of(item)
            path = self._names_for(found.label).place(wanted, source=item.name)
            write_new(path, encode(image, path), overwrite=self._overwrite, hint=HINT)

    def _names_for(self, label: str) -> NewNames:
        name = naming.folder_name_of(label)
        if name not in self._names:
            folder = make_folder("--crops", str(Path(self._folder) / name))
            self._names[name] = NewNames(folder, self._inputs, overwrite=self._overwrite)
        return self._names[name]
