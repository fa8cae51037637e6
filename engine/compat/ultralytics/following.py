"""track(): one tracker for each video, or for all calls, with the rules of ultralytics."""

from __future__ import annotations

from typing import Any

from engine.errors import InputError, suggest
from engine.track import Tracker
from engine.vision.result import Result

_TRACKERS = ("botsort.yaml", "bytetrack.yaml")  # files of ultralytics, with the settings below
_HIGH, _LOW = 0.25, 0.1
_LOST_SECONDS = 1.0  # 30 frames at 30 a second


class Following:
    """Gives the boxes of successive results their identities.

    Each video or picture begins anew, unless `persist`: then all results are one sequence.
    """

    def __init__(self) -> None:
        self._tracker = _new_tracker()
        self._name: str | None = None

    def follow(self, result: Result, name: str, *, persist: bool) -> Result:
        """Return the boxes that have an identity, or, if none has, all of them.

        Programs ask whether `boxes.id` is None.
        """
        if name != self._name and not persist:
            self._tracker = _new_tracker()
        self._name = name
        followed = self._tracker.follow(result)
        return followed if len(followed) else result


def _new_tracker() -> Tracker:
    return Tracker(high=_HIGH, low=_LOW, lost_seconds=_LOST_SECONDS, across_classes=True)


def check_tracker(name: Any) -> None:
    """Refuse settings that would be ignored."""
    if name is not None and name not in _TRACKERS:
        known = " or ".join(_TRACKERS)
        hint = suggest(str(name), _TRACKERS) or " For other settings use engine.track.Tracker"
        raise InputError(f"tracker: expected {known}, got {name!r}.{hint}")
