"""--crops: what was detected, cut out of the pictures, in a folder for each label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.cli._output_files import ReservedPaths, UniqueNames, make_folder
from engine.cli._sinks import file_names
from engine.cli._sinks.base import Sink
from engine.sources.item import Item
from engine.vision.encode import encode


class Crops(Sink):
    def __init__(self, folder: str, reserved: ReservedPaths, *, overwrite: bool) -> None:
        self._folder = make_folder("--crops", folder)
        self._reserved = reserved
        self._overwrite = overwrite
        self._names: dict[str, UniqueNames] = {}

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        for found, image in outcome.crops():
            name = file_names.name_of(item, image.size)
            content = encode(image, name)
            with self._names_for(found.label).new_file(name, source=item.name) as file:
                file.part.write_bytes(content)

    def _names_for(self, label: str) -> UniqueNames:
        name = file_names.folder_name_of(label)
        if name not in self._names:
            folder = make_folder("--crops", str(Path(self._folder) / name))
            self._names[name] = UniqueNames(folder, self._reserved, overwrite=self._overwrite)
        return self._names[name]
