"""track(): one tracker for each video, or for all calls, with the rules of ultralytics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.errors import InputError, suggest
from engine.sources.pictures import is_endless
from engine.track import Tracker
from engine.vision.result import Result

_TRACKERS = ("botsort.yaml", "bytetrack.yaml")  # files of ultralytics, with the settings below
_HIGH, _LOW = 0.25, 0.1
_LOST_FRAMES, _RATE = 30, 30.0


class Following:
    """Tracks the boxes of successive results.

    Tracking restarts with each video or picture unless `persist`: then all results form one
    sequence. Cameras and live streams, whose frames are interleaved, have a tracker each.
    """

    def __init__(self) -> None:
        self._trackers: dict[str, Tracker] = {}  # by name for live sources, "" for all others
        self._name: str | None = None  # name of the latest source that is not live

    def reset(self) -> None:
        """Restart tracking with the next picture."""
        self._trackers.clear()

    def follow(self, result: Result, name: str, *, persist: bool) -> Result:
        """Return the result with only the boxes that have an identity.

        If none has one, return no boxes while a new track awaits confirmation, and otherwise all
        boxes, with None as `boxes.id`.
        """
        is_live = is_endless(name)
        if not is_live and name != self._name and not persist:
            self._trackers.pop("", None)
        if not is_live:
            self._name = name
        tracker = self._trackers.setdefault(name if is_live else "", _new_tracker())
        # As in ultralytics, frames are counted, and their times are ignored.
        followed = replace(tracker.follow(replace(result, frame=None)), frame=result.frame)
        if len(followed):
            return followed
        return result[:0] if tracker.has_unconfirmed else result


def _new_tracker() -> Tracker:
    return Tracker(
        high=_HIGH, low=_LOW, lost_seconds=_LOST_FRAMES / _RATE, rate=_RATE, across_classes=True
    )


def check_tracker(name: Any) -> None:
    """Refuse settings that would be ignored."""
    if name is not None and str(name) not in _TRACKERS:
        known = " or ".join(_TRACKERS)
        hint = suggest(str(name), _TRACKERS) or " For other settings use engine.track.Tracker"
        raise InputError(f"tracker: expected {known}, got {name!r}.{hint}")
