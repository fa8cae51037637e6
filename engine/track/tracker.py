"""Multi-object tracking: ByteTrack, with a Kalman filter for each box.

Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", ECCV 2022.
High-scoring boxes are matched first, with all known tracks. The remaining tracks are then matched
with low-scoring boxes, such as those of partly occluded objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.arguments import as_array, fraction, whole
from engine.arrays import Array
from engine.errors import InputError
from engine.track.assignment import best_pairs
from engine.track.overlap import overlaps

if TYPE_CHECKING:
    from engine.vision.result import Result

NO_TRACK = -1

# Standard deviations of the Kalman filter per frame, relative to the sides of the box.
_POSITION_NOISE = 1 / 20
_SPEED_NOISE = 1 / 160
_FIRST_POSITION_NOISE = 2 * _POSITION_NOISE
_FIRST_SPEED_NOISE = 10 * _SPEED_NOISE

_MIN_IOU_OF_NEW = 0.3  # between the first two boxes of a track
_LEAST = np.array([[-np.inf], [-np.inf], [1e-3], [1e-3]])  # minimum x, y, width and height
_MAX_BOXES = 1000  # best boxes per frame, as memory and time grow quadratically
_LOW = 0.1  # default minimum score of boxes that continue tracks
_SIDES = np.array([2, 3, 2, 3])  # width for x and width, height for y and height
_STEP_DECAY = 0.9  # decay of the longest step between frames, per frame
_PAUSE = 3  # a gap of this many steps is a pause, if tracks do not last as long
_TIME_TOLERANCE = 1e-6  # seconds, for rounded timestamps


@dataclass
class _Tracks:
    """The tracks of a video: (n,), and (4, n) for x, y, width and height.

    The coordinates have independent filters: each has a position, a speed per frame, and the
    variances and the covariance of the two.
    """

    place: Array
    speed: Array
    place_variance: Array
    covariance: Array
    speed_variance: Array
    id: Array  # NO_TRACK until confirmed
    class_id: Array
    hits: Array  # number of boxes so far
    last_seen: Array  # seconds
    is_lost: Array

    @classmethod
    def started(cls, places: Array, classes: Array, seconds: float) -> _Tracks:
        """Return new tracks for boxes."""
        count = places.shape[1]
        return cls(
            place=places,
            speed=np.zeros(places.shape),
            place_variance=(places[_SIDES] * _FIRST_POSITION_NOISE) ** 2,
            covariance=np.zeros(places.shape),
            speed_variance=(places[_SIDES] * _FIRST_SPEED_NOISE) ** 2,
            id=np.full(count, NO_TRACK),
            class_id=classes.astype(np.int64),
            hits=np.ones(count, np.int64),
            last_seen=np.full(count, seconds),
            is_lost=np.zeros(count, bool),
        )

    def __getitem__(self, wanted: Array | slice) -> _Tracks:
        return _Tracks(*(values[..., wanted] for values in vars(self).values()))

    def __add__(self, other: _Tracks) -> _Tracks:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Tracks(*(np.concatenate(pair, axis=-1) for pair in pairs))

    @property
    def edges(self) -> Array:
        """The left, top, right and bottom edges, (4, n)."""
        centre, half = self.place[:2], self.place[2:] / 2
        return np.concatenate([centre - half, centre + half])


class Tracker:
    """Identities for the boxes of one video or camera, from any detector.

        tracker = Tracker(rate=25)
        for boxes, scores, classes in detections:
            ids = tracker.update(boxes, scores, classes)

    Identities are 1, 2, 3, …. Use one tracker for each video, and call it for every frame,
    including those without boxes. It also needs low-scoring boxes, down to `low`.
    """

    def __init__(
        self,
        *,
        high: float = 0.5,
        low: float | None = None,
        new: float | None = None,
        iou: float = 0.2,
        low_iou: float = 0.5,
        lost_seconds: float = 1.5,
        rate: float = 30.0,
        hits: int = 2,
        across_classes: bool = False,
    ) -> None:
        """Create a tracker.

        Boxes with scores of at least `high` are matched with tracks that they overlap by `iou`,
        then those of at least `low` (by default 0.1, or `high` if that is less) with the remaining
        tracks, by `low_iou`. An unmatched box of at least `new` (by default `high`) starts a track,
        which gets its identity with its `hits`-th box in successive frames, or at once in the first
        frame. A track that is not seen for `lost_seconds` ends, but an object seen in every frame
        keeps its track, however far apart the frames are. `rate` is the number of frames per
        second. Boxes continue only tracks of their own class, unless `across_classes`.
        """
        self._high = fraction("high", high)
        self._low = min(_LOW, self._high) if low is None else fraction("low", low)
        if self._low > self._high:
            raise InputError(f"low: expected at most high, {self._high:g}, got {self._low:g}")
        self._new = self._high if new is None else fraction("new", new)
        self._iou = fraction("iou", iou)
        self._low_iou = fraction("low_iou", low_iou)
        self._lost_seconds = _positive("lost_seconds", lost_seconds, or_zero=True)
        self._rate = _positive("rate", rate)
        self._hits = whole("hits", hits)
        self._across_classes = across_classes
        self._last_id = 0
        self._seconds: float | None = None  # time of the last frame
        self._step = 0.0  # longest step between recent frames of this scene
        self._tracks = _Tracks.started(np.empty((4, 0)), np.empty(0), 0.0)

    @property
    def count(self) -> int:
        """The number of identities so far."""
        return self._last_id

    @property
    def seconds(self) -> float:
        """The time of the last frame."""
        return self._seconds or 0.0

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there is a track without an identity yet."""
        return bool((self._tracks.id == NO_TRACK).any())

    def reset(self) -> None:
        """Forget all tracks: the next frame is the first one of another scene."""
        self._tracks = self._tracks[:0]
        self._seconds = None

    def follow(self, result: Result, *, seconds: float | None = None) -> Result:
        """Return the boxes of a result that have an identity, which is in `track_ids`.

        The detector needs a threshold as low as `low`. `seconds` is the time of the frame, by
        default that of the result's video frame.
        """
        if seconds is None and result.frame is not None:
            seconds = result.frame.seconds
        ids = self.update(result.xyxy, result.scores, result.class_ids, seconds=seconds)
        rows = np.flatnonzero(ids != NO_TRACK)
        return replace(result[rows], track_ids=ids[rows])

    def update(
        self, boxes: Any, scores: Any, classes: Any = None, *, seconds: float | None = None
    ) -> Array:
        """Return the identity of each box of the next frame, (n,) int64; -1 if it has none.

        `boxes` are (n, 4): left, top, right, bottom; `scores` and `classes` are (n,). `seconds` is
        the time of the frame; the default is the next one at the `rate`. A time before the last
        one, or after a pause of more than `lost_seconds`, starts a new scene. Boxes that are empty
        or not finite get no identity, nor do any but the best 1000.
        """
        edges, scores, classes = _checked(boxes, scores, classes)
        with np.errstate(all="ignore"):
            is_first = self._advance(seconds)
            sides = edges[:, 2:] - edges[:, :2]
            usable = ((sides > 0) & (sides < np.inf)).all(axis=1) & (scores >= self._low)
            rows = usable.nonzero()[0]
            if len(rows) > _MAX_BOXES:
                best = np.argsort(-np.where(usable, scores, -np.inf))[:_MAX_BOXES]
                rows = np.sort(best)
            ids = np.full(len(edges), NO_TRACK)
            usable_edges = np.ascontiguousarray(edges[rows].T)
            ids[rows] = self._identify(usable_edges, scores[rows], classes[rows], is_first=is_first)
        return ids

    def _identify(self, edges: Array, scores: Array, classes: Array, *, is_first: bool) -> Array:
        """Match boxes with tracks, start new ones, and return the identities of the boxes."""
        rows, columns, overlap = overlaps(self._tracks.edges, edges)
        if not self._across_classes:
            overlap[self._tracks.class_id[rows] != classes[columns]] = 0
        found = np.full(self._tracks.id.shape, -1)  # the box of each track

        def match(tracks: Array, boxes: Array, least: float) -> None:
            pairs = (tracks[rows] & boxes[columns] & (overlap > least)).nonzero()[0]
            if len(pairs):
                pairs = pairs[best_pairs(rows[pairs], columns[pairs], least - overlap[pairs])]
                found[rows[pairs]] = columns[pairs]
                boxes[columns[pairs]] = False

        high = scores >= self._high
        low = ~high
        is_known = self._tracks.id != NO_TRACK
        match(is_known, high, self._iou)
        match(is_known & (found < 0), low, self._low_iou)
        match(~is_known, high, _MIN_IOU_OF_NEW)
        places = np.concatenate([(edges[:2] + edges[2:]) / 2, edges[2:] - edges[:2]])
        self._correct(found, places, classes)
        ids = np.full(len(scores), NO_TRACK)
        has_found = found >= 0
        ids[found[has_found]] = self._tracks.id[has_found]
        self._keep(is_known | has_found)
        starting = (high & (scores >= self._new)).nonzero()[0]
        if len(starting):
            started = _Tracks.started(places[:, starting], classes[starting], self.seconds)
            if is_first or self._hits == 1:
                started.id = ids[starting] = self._new_ids(len(starting))
            self._tracks += started
        return ids

    # ------------------------------------------------------------ tracks

    def _advance(self, seconds: float | None) -> bool:
        """Advance to the time of the next frame; return whether it is the first of a scene."""
        before = self._seconds
        if seconds is None:
            now = 0.0 if before is None else before + 1 / self._rate
        else:
            if not isinstance(seconds, Real) or not np.isfinite(now := float(seconds)):
                raise InputError(f"seconds: expected a finite number, got {seconds!r}")
        self._seconds = now
        if before is None or now < before or self._is_pause(now - before):
            self._tracks = self._tracks[:0]
            self._step = 0.0
            return True
        last_seen = self._tracks.last_seen
        self._keep((now - last_seen <= self._longest_loss) | (last_seen == before))
        self._predict((now - before) * self._rate)
        self._step = max(now - before, _STEP_DECAY * self._step)
        return False

    @property
    def _longest_loss(self) -> float:
        """The maximum seconds from one box of a track to the next."""
        return self._lost_seconds + 1 / self._rate + _TIME_TOLERANCE

    def _is_pause(self, step: float) -> bool:
        """Return whether a step is too long for tracks to last, and unusual in this scene."""
        usual = self._step or np.inf  # after the first frame, any step may be usual
        return step > max(self._longest_loss, _PAUSE * usual)

    def _keep(self, wanted: Array) -> None:
        if not wanted.all():  # avoid copying all fields
            self._tracks = self._tracks[wanted]

    def _predict(self, frames: float) -> None:
        tracks = self._tracks
        tracks.speed[2:, tracks.is_lost] = 0  # lost tracks keep their size
        tracks.place += frames * tracks.speed
        np.maximum(tracks.place, _LEAST, out=tracks.place)
        scale = frames * tracks.place[_SIDES] ** 2
        tracks.place_variance += (
            frames * (2 * tracks.covariance + frames * tracks.speed_variance)
            + scale * _POSITION_NOISE**2
        )
        tracks.covariance += frames * tracks.speed_variance
        tracks.speed_variance += scale * _SPEED_NOISE**2

    def _correct(self, found: Array, places: Array, classes: Array) -> None:
        """Move matched tracks to their boxes, and assign new identities."""
        tracks = self._tracks
        tracks.is_lost = found < 0
        if tracks.is_lost.all():
            return
        noise = (tracks.place[_SIDES] * _POSITION_NOISE) ** 2
        total = tracks.place_variance + noise
        # Without a box the gain is zero, and the variance is kept.
        pull = np.where(tracks.is_lost, 0, tracks.place_variance / total)
        gain = np.where(tracks.is_lost, 0, tracks.covariance / total)
        kept = np.where(tracks.is_lost, 1, noise / total)
        error = places[:, found] - tracks.place
        tracks.place += error * pull
        np.maximum(tracks.place, _LEAST, out=tracks.place)
        tracks.speed += error * gain
        tracks.place_variance *= kept
        tracks.speed_variance -= gain * tracks.covariance
        tracks.covariance *= kept
        is_seen = ~tracks.is_lost
        tracks.class_id[is_seen] = classes[found[is_seen]]
        tracks.hits += is_seen
        tracks.last_seen[is_seen] = self._seconds
        confirmed = ((tracks.id == NO_TRACK) & (tracks.hits >= self._hits)).nonzero()[0]
        if len(confirmed):
            tracks.id[confirmed] = self._new_ids(len(confirmed))

    def _new_ids(self, count: int) -> Array:
        self._last_id += count
        return np.arange(self._last_id - count, self._last_id) + 1


def _positive(name: str, value: object, *, or_zero: bool = False) -> float:
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    if not (0 < number < np.inf or (or_zero and number == 0)):
        expected = "a number of 0 or more" if or_zero else "a number above 0"
        raise InputError(f"{name}: expected {expected}, got {value!r}")
    return number


def _numbers(name: str, value: Any) -> Array:
    try:
        return np.asarray(as_array(name, value), np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected numbers, got {brief(value)}") from None


def _checked(boxes: Any, scores: Any, classes: Any) -> tuple[Array, Array, Array]:
    edges, scores = _numbers("boxes", boxes), as_array("scores", scores)
    # Scores are compared in their own precision: 0.7 as float32 is less than 0.7.
    scores = scores if scores.dtype.kind == "f" else _numbers("scores", scores)
    if not edges.size:
        edges = edges.reshape(0, 4)
    if edges.ndim != 2 or edges.shape[1] != 4:
        raise InputError(f"boxes: expected (n, 4), got {edges.shape}")
    classes = as_array("classes", np.zeros(len(edges), np.int64) if classes is None else classes)
    for name, values in (("scores", scores), ("classes", classes)):
        if values.shape != (len(edges),):
            expected = f"one for each of {len(edges)} boxes"
            raise InputError(f"{name}: expected {expected}, got {values.shape}")
    if classes.dtype.kind not in "iubf" and classes.size:
        raise InputError(f"classes: expected numbers of classes, got {classes.dtype}")
    return edges, scores, classes
