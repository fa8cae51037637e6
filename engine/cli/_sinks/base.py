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
    """A picture with a result, for which memory does not suffice to draw or crop it."""


@contextmanager
def drawing(option: str, name: str) -> Iterator[None]:
    """Convert a MemoryError to an UndrawnError, after which the run continues."""
    try:
        yield
    except MemoryError:
        what = "the picture to draw on does not fit into memory"
        raise UndrawnError(f"{shown(name)}: {option}: {what}") from None


class Sink:
    """An output of a run, whose constructor raises errors before a network is loaded."""

    has_names = False  # writes files under the names recorded for pictures
    has_pixels = False  # writes pixels, which --blur and --pixelate change
    is_stdout = False  # writes to stdout, where nothing else may be printed

    def lacks(self, item: Item) -> bool | None:
        """Return whether this picture is missing from an earlier run; None if that is unknown.

        A resumed run calls this once for each picture, in order.
        """
        return None

    def is_due(self, item: Item) -> bool:
        """Return whether a run that should have replaced the files of a picture did not."""
        return False

    def shows_more(self, item: Item) -> bool:
        """Return whether an earlier run hid less in a picture than this one."""
        return False

    def found(self, item: Item) -> int | None:
        """Return how many objects an earlier run found in a picture; None if that is unknown."""
        return None

    def misses(self, item: Item, found: int | None) -> bool | None:
        """Decide what lacks() could not, given the count from another output."""
        return None

    def lock(self) -> None:
        """Lock the output against other runs, or raise an error; change nothing yet."""

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        """Start the output; `about` describes the run, `labels` are the network's classes."""

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        """Write a Result or Classification; an UndrawnError does not end the run."""

    def fail(self, item: Item, error: ImageError) -> None:
        """Write the error of a picture that could not be read."""

    def cut_short(self) -> None:
        """Prepare for an early finish(), after an interrupt or --fail-fast."""

    def finish(self) -> None:
        """Complete the output at the end of the run or after an interrupt."""

    def discard(self) -> None:
        """Remove an incomplete output after a failure."""
