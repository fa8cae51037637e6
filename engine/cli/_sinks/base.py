"""What every output does with the results of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.errors import ImageError
    from engine.sources.item import Item


class Sink:
    """An output; it is made, and refuses what cannot be, before a network is loaded."""

    is_stdout = False  # nothing else is printed there then

    def begin(self, about: dict[str, Any]) -> None:
        """The run begins; `about` says with what."""

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        """A Result or Classification."""

    def fail(self, item: Item, error: ImageError) -> None:
        """A picture that could not be read."""

    def finish(self) -> None:
        """The run has ended, or the user has ended it: make what there is complete."""

    def discard(self) -> None:
        """The run has failed: leave nothing half done."""
