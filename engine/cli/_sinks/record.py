"""The records in the folders of outputs, as an output of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.cli._output_names import OutputNames
from engine.cli._sinks.base import Sink
from engine.cli._sources import NamedMedia
from engine.sources.item import Item
from engine.sources.media import MediaKind


class Record(Sink):
    """Lines that say which picture each name belongs to; they follow from no other output."""

    def __init__(self, naming: OutputNames, known: Sequence[NamedMedia]) -> None:
        self._naming = naming
        self._archives = [each for each in known if each.media.kind is MediaKind.ARCHIVE]

    def lacks(self, item: Item) -> None:
        if item.is_picture:
            self._claim(item)  # files that are complete may be older than the record

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        for media, output in self._archives:
            self._naming.claim(output, media.name)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._claim(item)

    def _claim(self, item: Item) -> None:
        self._naming.claim(item.output, item.frame.video if item.frame else item.name)
