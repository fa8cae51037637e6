"""Options for object tracking, and the tracking of a run."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from engine.arguments import fraction
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.cli._sources import Feed, NamedMedia
    from engine.sources.item import Item
    from engine.sources.media import Media
    from engine.track import Line, Scene, ScenePlan, Zone
    from engine.vision.result import Result

_MOT_FOLDER = "img1"  # MOTChallenge keeps the frames of a sequence in SEQUENCE/img1
_MOST_DIGITS = 9  # maximum for a frame number; longer numbers are times
_SETTINGS = ("track_low", "track_lost", "anchor")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    track = parser.add_argument_group("tracking: see docs/tracking.md")
    add_settings(track)
    track.add_argument(
        "--save-mot", metavar="FILE|DIR", help="where to write tracks as text for MOTChallenge"
    )


def add_settings(track: argparse._ArgumentGroup, *, numbers: str = "") -> None:
    """Add the options of tracking and counting; `numbers` stands for the number of a source."""
    track.add_argument("--track", action="store_true", help="track objects from frame to frame")
    track.add_argument(
        "--track-low",
        type=float,
        metavar="SCORE",
        help="minimum score of boxes that continue a track (0.1)",
    )
    track.add_argument(
        "--track-lost",
        type=float,
        metavar="SECONDS",
        help="how long a hidden object keeps its identity (1.5)",
    )
    track.add_argument(
        "--line",
        action="append",
        metavar=f"{numbers}[NAME=]X1,Y1,X2,Y2",
        help="count what crosses a line, in both directions",
    )
    track.add_argument(
        "--zone",
        action="append",
        metavar=f"{numbers}[NAME=]X1,Y1,X2,Y2,X3,Y3,…",
        help="count what is in a polygon",
    )
    track.add_argument(
        "--anchor", metavar="POINT", help="what has to cross: centre or bottom of a box (centre)"
    )


def is_wanted(arguments: argparse.Namespace) -> bool:
    return has_any(arguments) or bool(arguments.save_mot)


def has_any(arguments: argparse.Namespace) -> bool:
    """Return whether objects are tracked; raise if tracking options are given in vain."""
    if arguments.track or arguments.line or arguments.zone:
        return True
    for name in _SETTINGS:
        if getattr(arguments, name) is not None and not getattr(arguments, "save_mot", None):
            raise InputError(f"--{name.replace('_', '-')}: only with --track")
    return False


def plan(arguments: argparse.Namespace, *, lines: Sequence[str], zones: Sequence[str]) -> ScenePlan:
    """Return the plan of tracking and counting, given the texts of lines and zones."""
    from engine.track import ScenePlan
    from engine.track.counting import checked_anchor

    high = fraction("threshold", arguments.threshold)
    if arguments.track_low is None:
        low = min(0.1, high)
    elif (low := fraction("track_low", arguments.track_low)) > high:
        raise InputError(f"--track-low: expected at most --threshold, {high:g}, got {low:g}")
    return ScenePlan(
        high=high,
        low=low,
        lost_seconds=1.5 if arguments.track_lost is None else arguments.track_lost,
        across_classes=getattr(arguments, "agnostic_nms", False),
        lines=[_line(text) for text in lines],
        zones=[_zone(text) for text in zones],
        anchor=checked_anchor(arguments.anchor or "centre"),
    )


def plans(arguments: argparse.Namespace, count: int) -> list[ScenePlan]:
    """Return the plans of several sources; a text with the prefix 1: is for number 1 only."""

    def texts_of(number: int, option: str) -> list[str]:
        found = []
        for text in getattr(arguments, option) or ():
            named, _, rest = text.partition(":")
            if not (named.isdecimal() and named.isascii()):
                found.append(text)
            elif int(named) >= count:
                raise InputError(f"--{option} {text}: expected a source from 0 to {count - 1}")
            elif int(named) == number:
                found.append(rest)
        return found

    return [
        plan(arguments, lines=texts_of(number, "line"), zones=texts_of(number, "zone"))
        for number in range(count)
    ]


class Tracked(NamedTuple):
    """The pictures in which objects keep their identities: a video, or the pictures of a folder."""

    key: str
    name: str  # name of the output file without an extension


def sequence_of(name: str, output: str, *, is_video: bool) -> Tracked:
    """Return the sequence of a frame or picture, given its name and its output name."""
    if is_video:
        return Tracked(f"video {output}", output)
    folder = PurePath(name).parent
    below_common = PurePath(output).parent
    shown_as = below_common if below_common.name else PurePath(Path(folder).absolute().name)
    if shown_as.name == _MOT_FOLDER:
        outer = Path(folder).absolute().parent.name
        shown_as = shown_as.parent if shown_as.parent.name else PurePath(outer or _MOT_FOLDER)
    return Tracked(f"folder {folder}", shown_as.as_posix() if shown_as.name else "pictures")


def sequence_of_item(item: Item) -> Tracked:
    if item.frame:
        return sequence_of(item.frame.video, item.output, is_video=True)
    # An archive counts as a folder, even for members that are in none: in.tar#/a.png.
    archive = item.name.removesuffix(item.member)
    name = f"{archive}/{item.member}" if item.member else item.name
    return sequence_of(name, item.output, is_video=False)


class _Numbering(NamedTuple):
    first: int
    step: int  # usual difference between two frames


class FrameNumbers:
    """The numbers of frames at the ends of the names of pictures, such as img1/000012.jpg.

    A folder has frame numbers if all of its pictures do, in increasing order.
    """

    def __init__(self, known: Sequence[NamedMedia] = ()) -> None:
        from engine.sources.media import MediaKind

        numbers: dict[str, list[int]] = defaultdict(list)
        for media, output in known:
            if media.kind is MediaKind.PICTURE:
                number = _last_number(media.name)
                key = sequence_of(media.name, output, is_video=False).key
                numbers[key].append(-1 if number is None else number)
        self._folders: dict[str, _Numbering] = {}
        for key, found in numbers.items():
            steps = [after - before for before, after in pairwise(found)] or [1]
            if min(found) >= 0 and min(steps) > 0:
                self._folders[key] = _Numbering(found[0], sorted(steps)[(len(steps) - 1) // 2])

    def of(self, item: Item) -> int | None:
        """Return the number of a frame, or None; if the first one is 0, add one to all."""
        if (found := self._find(item)) is None:
            return None
        numbering, number = found
        return number + (numbering.first == 0)

    def frames_since_first(self, item: Item) -> float | None:
        """Return the time of a frame in units of the step, or None."""
        if (found := self._find(item)) is None:
            return None
        numbering, number = found
        return (number - numbering.first) / numbering.step

    def _find(self, item: Item) -> tuple[_Numbering, int] | None:
        numbering = self._folders.get(sequence_of_item(item).key)
        number = _last_number(item.name)
        return None if numbering is None or number is None else (numbering, number)


def _last_number(name: str) -> int | None:
    """Return the number at the end of a file's name, before its extension."""
    found = re.search("[0-9]+$", PurePath(name).stem)
    digits = found[0].lstrip("0") or "0" if found else ""
    return int(digits) if 0 < len(digits) <= _MOST_DIGITS else None


def _natural(media: Media) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", media.name)
    return [(int(part), "") if at % 2 else (0, part) for at, part in enumerate(parts)]


class Following:
    """Tracks the objects of each video and of each folder of pictures separately."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._plan = plan(arguments, lines=arguments.line or (), zones=arguments.zone or ())
        self.about = {"track_low": self._plan.low, "track_lost": self._plan.lost_seconds}
        self._stride = arguments.stride
        self._numbers = FrameNumbers()
        self._scenes: dict[str, Scene] = {}
        self._at_once = arguments.at_once
        self._live: set[str] = set()  # output names
        self._videos: list[str] = []  # scenes of videos that may continue, latest last

    @property
    def threshold(self) -> float:
        """The detector's threshold: the tracker needs low-scoring boxes, too."""
        return self.about["track_low"]

    def in_frame_order(self, feed: Feed) -> Feed:
        """Sort the pictures of each folder by the numbers in their names: img2 is before img10.

        From then on, frame numbers count as times.
        """
        if not feed.found:
            return feed
        ordered: list[NamedMedia] = []
        for root, group in groupby(feed.found, lambda each: each.media.root):
            together = list(group)
            if root is not None:  # found by a search; others keep the user's order
                together.sort(key=lambda each: _natural(each.media))
            ordered += together
        self._numbers = FrameNumbers(ordered)
        self._live = {output for media, output in ordered if media.is_live}
        return replace(feed, sources=tuple(ordered), found=tuple(ordered))

    def take(self, item: Item, result: Result) -> Result:
        """Return the result with only the boxes that have an identity."""
        key = sequence_of_item(item).key
        self._forget_videos_before(item, key)
        if key not in self._scenes:
            self._scenes[key] = self._new_scene(item)
        return self._scenes[key].follow(result, seconds=self._seconds(item))

    def fail(self, item: Item) -> None:
        """Skip a picture that could not be read."""
        key = sequence_of_item(item).key
        self._forget_videos_before(item, key)
        scene = self._scenes.get(key)
        if scene and item.is_picture:
            scene.skip(seconds=self._seconds(item))

    def _forget_videos_before(self, item: Item, key: str) -> None:
        """Drop the scenes of ended videos, as a run may have thousands.

        Videos are interleaved, so the one with the oldest latest frame has ended.
        """
        if not item.frame or item.output in self._live:
            return
        if key in self._videos:
            self._videos.remove(key)
        while len(self._videos) >= self._at_once:
            self._scenes.pop(self._videos.pop(0), None)
        self._videos.append(key)

    def _seconds(self, item: Item) -> float | None:
        from engine.track.scene import USUAL_RATE

        if item.frame:
            return item.frame.seconds
        frames = self._numbers.frames_since_first(item)
        return None if frames is None else frames / USUAL_RATE

    def _new_scene(self, item: Item) -> Scene:
        if not item.frame:
            return self._plan.scene()
        return self._plan.scene(float(item.frame.rate), stride=self._stride)


def _line(text: str) -> Line:
    from engine.track import Line

    name, points = _shape("--line", text)
    if len(points) != 2:
        raise InputError(f"--line {text}: expected 2 points, got {len(points)}")
    return Line(points[0], points[1], name)


def _zone(text: str) -> Zone:
    from engine.track import Zone

    name, points = _shape("--zone", text)
    return Zone(tuple(points), name)


def _shape(option: str, text: str) -> tuple[str, list[tuple[float, float]]]:
    """Parse NAME=X1,Y1,X2,Y2,…; the name may be left out."""
    name, _, numbers = text.rpartition("=")
    try:
        values = [float(each) for each in numbers.split(",")]
    except ValueError:
        raise InputError(
            f"{option} {text}: expected numbers X1,Y1,X2,Y2, got {numbers!r}"
        ) from None
    if len(values) % 2:
        raise InputError(f"{option} {text}: expected pairs of X,Y, got {len(values)} numbers")
    return name, list(zip(values[::2], values[1::2], strict=True))
