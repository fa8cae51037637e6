"""Track the results of a detector through one video: identities, trails, counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.arguments import check_kind
from engine.errors import ImageError, InputError
from engine.track.counting import Anchor, Counts, Line, Zone, anchors, checked_anchor
from engine.track.tracker import Tracker
from engine.vision.overlay import Overlay, Point
from engine.vision.result import Result

TRAIL_SECONDS = 2.0

_MOST_RATE = 240.0  # frames per second; some containers state their clock rate: 1000 or 90,000
USUAL_RATE = 30.0  # frames per second; also used for a folder of pictures


@dataclass(frozen=True)
class ScenePlan:
    """The settings of tracking and counting; scene() applies them to one video."""

    high: float = 0.5
    low: float = 0.1
    lost_seconds: float = 1.5
    across_classes: bool = False
    lines: Sequence[Line] = ()
    zones: Sequence[Zone] = ()
    anchor: Anchor = "centre"

    def __post_init__(self) -> None:
        self.scene()  # raises if a setting is out of range

    def scene(self, stated_rate: float = USUAL_RATE, *, stride: int = 1) -> Scene:
        """Return the scene of a video. Every `stride`-th of its frames will be taken."""
        rate = stated_rate if 0 < stated_rate <= _MOST_RATE else USUAL_RATE
        tracker = Tracker(
            high=self.high,
            low=self.low,
            lost_seconds=self.lost_seconds,
            rate=rate / stride,
            across_classes=self.across_classes,
        )
        return Scene(tracker, lines=self.lines, zones=self.zones, anchor=self.anchor)


class Scene:
    """What happens in one video: follow() takes the results of its frames, in order.

    scene = Scene(Tracker(rate=25), lines=[Line((0, 300), (640, 300), "door")])
    for result in detector.stream("street.mp4", threshold=0.1):
        result = scene.follow(result)
        print(result.track_ids, result.counts)
    """

    def __init__(
        self,
        tracker: Tracker | None = None,
        *,
        lines: Sequence[Line] = (),
        zones: Sequence[Zone] = (),
        anchor: Anchor = "centre",
    ) -> None:
        self.tracker = tracker or Tracker()
        self._anchor = checked_anchor(anchor)
        for name, given in (("lines", lines), ("zones", zones)):
            check_kind(name, given, Iterable, "a list")
        self._counts = Counts(lines, zones, anchor=anchor) if lines or zones else None
        self._trails: dict[int, deque[tuple[float, Point]]] = {}

    def follow(self, result: Result, *, seconds: float | None = None) -> Result:
        """Return the boxes that have an identity, with `track_ids`, `counts` and what to draw.

        `seconds` is the time of the frame. It defaults to the time of the result's video frame, or
        else to the next one at the tracker's rate.
        """
        if isinstance(result, ImageError):
            raise InputError(f"result: expected a Result, got the error {result}. Call skip()")
        check_kind("result", result, Result, "a Result")
        followed = self.tracker.follow(result, seconds=seconds)
        counts = self._counts.update(followed) if self._counts else None
        marks = tuple(self._counts.marks(followed.size)) if self._counts else ()
        return replace(followed, counts=counts, overlay=Overlay(self._trails_to(followed), marks))

    def skip(self, *, seconds: float | None = None) -> None:
        """Skip a frame that could not be read."""
        self.tracker.update([], [], seconds=seconds)

    def _trails_to(self, result: Result) -> dict[int, list[Point]]:
        """Return the recent positions of the objects in this frame."""
        now = self.tracker.seconds
        assert result.track_ids is not None
        here = zip(result.track_ids.tolist(), anchors(result, self._anchor).tolist(), strict=True)
        for identity, (x, y) in here:
            self._trails.setdefault(identity, deque()).append((now, (x, y)))
        for identity, trail in list(self._trails.items()):
            while trail and not now - TRAIL_SECONDS <= trail[0][0] <= now:
                trail.popleft()
            if not trail:
                del self._trails[identity]
        return {
            identity: [place for _, place in self._trails[identity]]
            for identity in result.track_ids.tolist()
        }
