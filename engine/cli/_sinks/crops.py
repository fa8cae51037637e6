"""--crops: the detected objects, cropped from the pictures, in a folder for each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.cli._output_files import Existing, OutputFolder, ReservedPaths
from engine.cli._output_names import OutputNames
from engine.cli._sinks.base import Sink, drawing
from engine.cli._sources import NamedMedia
from engine.files.naming import folder_name_of
from engine.files.walk import walk
from engine.outputs import file_names
from engine.outputs.record import owners_in
from engine.sources.item import Item
from engine.vision.encode import encode


class Crops(Sink):
    """Crops in a folder; the second crop with a label in a picture is called picture-2.jpg."""

    has_names = has_pixels = True

    def __init__(
        self,
        folder: str,
        reserved: ReservedPaths,
        known: Sequence[NamedMedia],
        *,
        existing: Existing,
        hint: str,
        naming: OutputNames,
        hides: bool,
    ) -> None:
        self._folder = OutputFolder("--crops", folder, reserved, existing=existing, hint=hint)
        owners = owners_in(folder)  # as they were before this run
        self._is_known = bool(owners) or not any(self._folder.path.iterdir())
        self._earlier = {each.name for each in owners if each.may_have("crops")}
        self._naming = naming
        self._resumes = existing == "resume"
        self._hides = hides
        self._folder.refuse_pictures_here(each.media for each in known)
        self._folder.check(_existing_crops(self._folder.path, known))

    def lacks(self, item: Item) -> bool | None:
        """Return True if no run has written crops of a picture, or None if that is unknown."""
        return True if self._is_known and item.output not in self._earlier else None

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        with drawing("--crops", item.name):
            self._write(item, outcome)

    def _write(self, item: Item, outcome: Any) -> None:
        keeps = self._resumes and not self._may_show_more(item)
        counts: Counter[str] = Counter()
        for found, image in outcome.crops():
            label = folder_name_of(found.label)
            counts[label] += 1
            name = file_names.crop_of(item, image.size, counts[label])
            if keeps and self._folder.has(f"{label}/{name}"):
                continue  # written by an earlier run or another program
            content = encode(image, name)
            with self._folder.new_file(f"{label}/{name}") as file:
                file.part.write_bytes(content)

    def _may_show_more(self, item: Item) -> bool:
        """Return whether the crops of a picture must be replaced because of what they may show."""
        picture = item.output, item.source_name
        if self._naming.is_due(*picture) or self._naming.shows_more(*picture):
            return True
        return self._hides and item.output not in self._earlier  # what they show is unknown


def _existing_crops(folder: Path, known: Sequence[NamedMedia]) -> Iterator[str]:
    """Yield the files whose names look like crops of the known sources."""
    outputs = {output for _, output in known}
    for inner, _, files in walk(str(folder)):
        for file in files if Path(inner) != folder else ():  # crops are in the labels' folders
            crop = (Path(inner) / file).relative_to(folder)
            below_label = Path(*crop.parts[1:])
            folders = (each.as_posix() for each in below_label.parents)
            if not outputs.isdisjoint((*file_names.sources_of_crop(below_label), *folders)):
                yield str(crop)
