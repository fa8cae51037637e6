"""The base of all sinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.errors import ImageError
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.sources.item import Item


class UndrawnError(ImageError):
    """A picture has a result, and does not fit into memory once more to be drawn or cropped."""


@contextmanager
def drawing(option: str, name: str) -> Iterator[None]:
    """Turn a MemoryError into an UndrawnError, after which the run goes on."""
    try:
        yield
    except MemoryError:
        what = "the picture to draw on does not fit into memory"
        raise UndrawnError(f"{shown(name)}: {option}: {what}") from None


class Sink:
    """An output of a run; its constructor raises errors before a network is loaded."""

    has_names = False  # writes files of the names that are recorded for pictures
    has_pixels = False  # writes what --blur and --pixelate hide
    is_stdout = False  # writes to stdout, where nothing else must be printed

    def lacks(self, item: Item) -> bool | None:
        """Tell whether an earlier run left this picture out; None if the output cannot tell.

        A run that resumes calls this once for each picture, in order.
        """
        return None

    def is_due(self, item: Item) -> bool:
        """Tell whether a run that was to replace the files of a picture has not done so."""
        return False

    def shows_more(self, item: Item) -> bool:
        """Tell whether an earlier run has hidden less in a picture than this one."""
        return False

    def found(self, item: Item) -> int | None:
        """Return how many objects an earlier run found in a picture; None if that is unknown."""
        return None

    def misses(self, item: Item, found: int | None) -> bool | None:
        """Decide, where lacks() could not, by what another output says was found."""
        return None

    def lock(self) -> None:
        """Keep other runs from the output, or raise an error; nothing that exists changes yet."""

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        """Start the output; `about` describes the run, `labels` are the network's classes."""

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        """Write a Result or Classification; an UndrawnError does not end the run."""

    def fail(self, item: Item, error: ImageError) -> None:
        """Write the error of a picture that could not be read."""

    def cut_short(self) -> None:
        """Prepare for finish() before the last picture, after an interrupt or --fail-fast."""

    def finish(self) -> None:
        """Complete the output at the end of the run or after an interrupt."""

    def discard(self) -> None:
        """Remove an incomplete output after a failure."""
