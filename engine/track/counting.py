"""Count what crosses lines and what is in zones, by class."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np

from engine.arguments import as_array, check_kind
from engine.arrays import Array
from engine.errors import InputError, suggest
from engine.vision.overlay import Mark, Point
from engine.vision.result import Result

Anchor = Literal["centre", "bottom"]

# Boxes jitter. The side of a box is known when its anchor is this far from the line, relative to
# the shorter side of the box.
_MARGIN = 0.05
# In a zone that is narrow for a box, the margin is at most this share of the width, so that the
# middle half is always inside.
_MARGIN_IN_ZONE = 0.25
_FORGET_FRAMES = 10_000  # after which an unseen track is forgotten


@dataclass(frozen=True)
class Line:
    """A line from `start` to `end`, in pixels, or relative to the picture if all are at most 1.

    Crossing from left to right, seen from `start`, counts as in; the other way, as out. For a line
    from the left to the right of the picture, moving down counts as in.
    """

    start: Point
    end: Point
    name: str = ""

    def __post_init__(self) -> None:
        start, end = _points(self.name or "line", (self.start, self.end))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "end", end)
        if self.start == self.end:
            raise InputError(f"{self.name or 'line'}: expected two different points")


@dataclass(frozen=True)
class Zone:
    """The inside of a polygon, in pixels, or relative to the picture if all are at most 1."""

    corners: tuple[Point, ...]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "corners", _points(self.name or "zone", self.corners))
        if len(set(self.corners)) < 3:
            got = len(set(self.corners))
            raise InputError(f"{self.name or 'zone'}: expected 3 or more points, got {got}")
        if _are_on_a_line(np.array(self.corners, np.float64)):
            what = f"{self.name or 'zone'}: expected points around an area, got points on one line"
            raise InputError(what)


def _points(name: str, points: Any) -> tuple[Point, ...]:
    """Return points as tuples, from any sequences or an array."""
    array = as_array(name, points)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iuf":
        raise InputError(f"{name}: expected points (x, y), got {brief(points)}")
    if not np.isfinite(array).all():
        raise InputError(f"{name}: expected finite numbers, got {points}")
    return tuple((x, y) for x, y in array.tolist())


class Counts:
    """The counts of one video; update() takes the tracked results of its frames.

    The position of an object is the centre of its box, or the middle of its lower edge with the
    anchor "bottom", which is where people and vehicles touch the ground.
    """

    def __init__(
        self,
        lines: Sequence[Line] = (),
        zones: Sequence[Zone] = (),
        *,
        anchor: Anchor = "centre",
    ) -> None:
        self._anchor = checked_anchor(anchor)
        lines, zones = tuple(lines), tuple(zones)
        for line in lines:
            check_kind("lines", line, Line, "objects of engine.track.Line")
        for zone in zones:
            check_kind("zones", zone, Zone, "objects of engine.track.Zone")
        self._lines = [_LineCount(each, number) for number, each in enumerate(lines, start=1)]
        self._zones = [_ZoneCount(each, number) for number, each in enumerate(zones, start=1)]
        self._all: tuple[_Count[Any], ...] = (*self._lines, *self._zones)
        names = [each.name for each in self._all]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"lines and zones: expected different names, got {name!r} twice")

    def update(self, result: Result) -> dict[str, Any]:
        """Take the next frame; return all counts as JSON values."""
        if result.track_ids is None:
            raise InputError("result: has no identities. See engine.track.Tracker.follow()")
        places = anchors(result, self._anchor)
        margins = _MARGIN * result.xywh[:, 2:].min(axis=1, initial=np.inf)
        names = result.track_ids.tolist(), result.labels
        for each in self._all:
            each.update(result.size, places, margins, *names)
        return {
            "lines": [each.to_dict() for each in self._lines],
            "zones": [each.to_dict() for each in self._zones],
        }

    def marks(self, size: tuple[int, int]) -> Iterator[Mark]:
        """Yield the marks that show the lines, zones and counts on a picture."""
        for each in self._all:
            yield each.mark(size)


def checked_anchor(anchor: str) -> Anchor:
    if anchor not in get_args(Anchor):
        hint = suggest(anchor, get_args(Anchor))
        raise InputError(f"anchor: expected centre or bottom, got {anchor!r}.{hint}")
    return anchor  # type: ignore[return-value]


def anchors(result: Result, anchor: Anchor) -> Array:
    """Return the positions of the objects, (n, 2), in pixels."""
    left, top, right, bottom = result.xyxy.astype(np.float64).T
    y = bottom if anchor == "bottom" else (top + bottom) / 2
    return np.stack([(left + right) / 2, y], axis=1)


Memory = TypeVar("Memory")


@dataclass
class _Seen(Generic[Memory]):
    """What is remembered of a track, and when it was last seen."""

    memory: Memory
    frame: int


class _Count(Generic[Memory]):
    """The counts of one line or zone."""

    kind = ""
    is_closed = False

    def __init__(self, points: Sequence[Point], name: str, number: int) -> None:
        self._points = np.array(points, np.float64)
        self.name = name or f"{self.kind} {number}"
        self._seen: dict[int, _Seen[Memory]] = {}
        self._frame = 0

    def update(
        self,
        size: tuple[int, int],
        places: Array,
        margins: Array,
        identities: Sequence[int],
        labels: Sequence[str],
    ) -> None:
        self._frame += 1
        self._begin()
        distances, limits = self._distances(places, self._in_pixels(size))
        margins = np.minimum(margins, limits)
        rows = zip(identities, labels, distances.tolist(), margins.tolist(), places, strict=True)
        for identity, label, distance, margin, place in rows:
            before = self._seen.get(identity)
            memory = self._take(
                *(before.memory if before else None, label, distance, place),
                is_known=abs(distance) > margin,
            )
            self._seen[identity] = _Seen(memory, self._frame)
        if self._frame % _FORGET_FRAMES == 0:
            oldest = self._frame - _FORGET_FRAMES
            self._seen = {key: each for key, each in self._seen.items() if each.frame > oldest}

    def mark(self, size: tuple[int, int]) -> Mark:
        points = [(float(x), float(y)) for x, y in self._in_pixels(size)]
        counts = (f"{name} {_text(each)}" for name, each in self._shown())
        return Mark(points, self.is_closed, f"{self.name}: {', '.join(counts)}")

    def _in_pixels(self, size: tuple[int, int]) -> Array:
        are_shares = (np.abs(self._points) <= 1).all()
        return np.asarray(self._points * size if are_shares else self._points)

    def _begin(self) -> None:
        """Begin a frame."""

    @abstractmethod
    def _distances(self, places: Array, points: Array) -> tuple[Array, Array]:
        """Return the signed distances from the line or the edge; the sign is the side.

        Also return the largest possible margins there.
        """

    @abstractmethod
    def _take(
        self, before: Memory | None, label: str, distance: float, place: Array, *, is_known: bool
    ) -> Memory:
        """Count an object; return what to remember.

        Its side is not known while it is near the line.
        """

    @abstractmethod
    def _shown(self) -> Iterator[tuple[str, Counter[str]]]: ...

    @abstractmethod
    def to_dict(self) -> dict[str, Any]: ...


@dataclass
class _Walk:
    place: Array  # in the last frame
    distance: float
    is_right: bool | None = None  # side of the line when it was last beyond the margin
    is_through: bool = False  # whether it last changed sides between the line's ends


class _LineCount(_Count[_Walk]):
    kind = "line"

    def __init__(self, line: Line, number: int) -> None:
        super().__init__((line.start, line.end), line.name, number)
        self._in: Counter[str] = Counter()
        self._out: Counter[str] = Counter()
        self._ends = self._points

    def _distances(self, places: Array, points: Array) -> tuple[Array, Array]:
        self._ends = points
        start, end = points
        along = (end - start) / np.hypot(*(end - start))
        from_start = places - start
        return _cross(along, from_start), np.full(len(places), np.inf)

    def _take(
        self, before: _Walk | None, label: str, distance: float, place: Array, *, is_known: bool
    ) -> _Walk:
        walk = before or _Walk(place, distance)
        is_right = distance > 0
        if is_right != (walk.distance > 0):
            share = walk.distance / (walk.distance - distance)
            crossing = walk.place + share * (place - walk.place)
            start, end = self._ends
            along = np.dot(crossing - start, end - start)
            walk.is_through = bool(0 <= along <= np.dot(end - start, end - start))
        walk.place, walk.distance = place, distance
        if is_known:
            if walk.is_right is not None and walk.is_right != is_right and walk.is_through:
                (self._in if is_right else self._out)[label] += 1
            walk.is_right = is_right
        return walk

    def _shown(self) -> Iterator[tuple[str, Counter[str]]]:
        yield "in", self._in
        yield "out", self._out

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "in": dict(self._in), "out": dict(self._out)}


@dataclass
class _Visit:
    is_inside: bool
    is_counted: bool = field(default=False)  # as a visitor


class _ZoneCount(_Count[_Visit]):
    kind = "zone"
    is_closed = True

    def __init__(self, zone: Zone, number: int) -> None:
        super().__init__(zone.corners, zone.name, number)
        self._inside: Counter[str] = Counter()
        self._entered: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._visitors: Counter[str] = Counter()

    def _begin(self) -> None:
        self._inside.clear()

    def _distances(self, places: Array, points: Array) -> tuple[Array, Array]:
        start, end = points, np.roll(points, -1, axis=0)
        x, y = places[:, :1], places[:, 1:]
        # From inside, a ray to the right crosses the polygon's edges an odd number of times.
        with np.errstate(all="ignore"):
            at = start[:, 0] + (y - start[:, 1]) / (end - start)[:, 1] * (end - start)[:, 0]
        crosses = ((start[:, 1] > y) != (end[:, 1] > y)) & (x < at)
        is_inside = crosses.sum(axis=1) % 2 == 1
        side = end - start
        length = np.maximum((side**2).sum(axis=1), np.finfo(float).tiny)
        share = ((places[:, None] - start) * side).sum(axis=2) / length
        away = places[:, None] - (start + np.clip(share, 0, 1)[:, :, None] * side)
        distances = np.hypot(*np.moveaxis(away, 2, 0))
        rows = np.arange(len(places)), distances.argmin(axis=1)
        distance, away = distances[rows], away[rows][:, None]
        # The distance from the nearest edge, through the point, to the opposite edge.
        with np.errstate(all="ignore"):
            to_start = start - places[:, None]
            further = _cross(to_start, side) / _cross(away, side)
            at = _cross(to_start, away) / _cross(away, side)
            is_hit = (further > 0) & (at >= 0) & (at <= 1)
            way = distance * (1 + np.where(is_hit, further, np.inf).min(axis=1))
        limit = np.where(is_inside, _MARGIN_IN_ZONE * way, np.inf)
        return np.where(is_inside, distance, -distance), limit

    def _take(
        self, before: _Visit | None, label: str, distance: float, place: Array, *, is_known: bool
    ) -> _Visit:
        is_inside = distance > 0
        visit = before or _Visit(is_inside)
        if is_known and is_inside != visit.is_inside:
            (self._entered if is_inside else self._left)[label] += 1
            visit.is_inside = is_inside
        if visit.is_inside:
            self._inside[label] += 1
            if not visit.is_counted:
                self._visitors[label] += 1
                visit.is_counted = True
        return visit

    def _shown(self) -> Iterator[tuple[str, Counter[str]]]:
        yield "inside", self._inside

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inside": dict(self._inside),
            "entered": dict(self._entered),
            "left": dict(self._left),
            "visitors": dict(self._visitors),
        }


def _are_on_a_line(points: Array) -> bool:
    """Return whether points are collinear, within rounding errors."""
    from_first = points - points[0]
    furthest = from_first[np.hypot(*from_first.T).argmax()]
    return bool((np.abs(_cross(furthest, from_first)) <= 1e-12 * (furthest**2).sum()).all())


def _cross(a: Array, b: Array) -> Array:
    """Return the cross products of vectors in the plane, (…, 2)."""
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


def _text(counts: Counter[str]) -> str:
    """Return 3 person 1 car, or 0."""
    return " ".join(f"{count} {label}" for label, count in counts.most_common()) or "0"
