"""Score multi-object tracking: MOTA, IDF1 and HOTA, with the underlying counts.

MOTA: Bernardin and Stiefelhagen 2008, "Evaluating Multiple Object Tracking Performance".
IDF1: Ristani et al. 2016, "Performance Measures and a Data Set for Multi-Target Tracking".
HOTA: Luiten et al. 2020, "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.evaluate.iou import iou_ltwh
from engine.track.assignment import assign

MAX_DISTANCE = 0.5  # largest 1 - IoU of a pair of object and box, for MOTA and IDF1
ALPHAS = np.arange(1, 20) * 0.05  # least IoU of a pair, for HOTA
_MOSTLY_TRACKED, _MOSTLY_LOST = 0.8, 0.2  # shares of an object's frames


@dataclass(frozen=True, eq=False)
class Tracks:
    """Boxes with an identity; a row for each box."""

    frames: Array  # (n,) int64
    ids: Array  # (n,) int64
    boxes: Array  # (n, 4) float64: left, top, width, height

    def __len__(self) -> int:
        return len(self.ids)


def _zeros() -> Array:
    return np.zeros(len(ALPHAS))


@dataclass(frozen=True, eq=False)
class Tally:
    """The counts of a sequence; those of several are added."""

    frames: int = 0
    objects: int = 0  # boxes of the ground truth
    boxes: int = 0  # boxes that were found
    identities: int = 0  # identities in the ground truth
    found_identities: int = 0
    matches: int = 0  # with the same identity as before, or the first one
    switches: int = 0  # matches with another identity than before
    misses: int = 0
    false_positives: int = 0
    fragmentations: int = 0  # how often a match is interrupted and later resumed
    mostly_tracked: int = 0  # identities that are matched in 80 % of their frames or more
    mostly_lost: int = 0  # identities that are matched in less than 20 %
    distance: float = 0.0  # the sum of 1 - IoU over all matches and switches
    id_matches: int = 0  # matched boxes with the best pairing of entire identities
    hota_matches: Array = field(default_factory=_zeros)  # for each of ALPHAS
    hota_association: Array = field(default_factory=_zeros)  # the sum over these matches
    hota_overlap: Array = field(default_factory=_zeros)  # the sum of their IoU

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        rows = [[getattr(each, name.name) for name in fields(cls)] for each in tallies]
        return cls(*(sum(column[1:], column[0]) for column in zip(*rows, strict=True)))

    @property
    def mota(self) -> float:
        errors = self.misses + self.switches + self.false_positives
        return (self.objects - errors) / max(1, self.objects)  # as in TrackEval

    @property
    def motp(self) -> float:
        """The mean of 1 - IoU over all matches, as motmetrics has it: less is better."""
        return _ratio(self.distance, self.matches + self.switches)

    @property
    def idf1(self) -> float:
        return _ratio(2 * self.id_matches, self.objects + self.boxes)

    @property
    def id_precision(self) -> float:
        return _ratio(self.id_matches, self.boxes)

    @property
    def id_recall(self) -> float:
        return _ratio(self.id_matches, self.objects)

    @property
    def hota(self) -> float:
        return float(np.sqrt(self._detection * self._association).mean())

    @property
    def detection_accuracy(self) -> float:
        """DetA."""
        return float(self._detection.mean())

    @property
    def association_accuracy(self) -> float:
        """AssA."""
        return float(self._association.mean())

    @property
    def localisation_accuracy(self) -> float:
        """LocA."""
        none = np.ones_like(self.hota_overlap)
        matches = self.hota_matches
        return float(np.divide(self.hota_overlap, matches, out=none, where=matches > 0).mean())

    @property
    def _detection(self) -> Array:
        return np.asarray(
            self.hota_matches / np.maximum(1, self.objects + self.boxes - self.hota_matches)
        )

    @property
    def _association(self) -> Array:
        return np.asarray(self.hota_association / np.maximum(1, self.hota_matches))

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics and counts as JSON values."""
        return {
            "mota": self.mota,
            "motp": self.motp,
            "idf1": self.idf1,
            "id_precision": self.id_precision,
            "id_recall": self.id_recall,
            "hota": self.hota,
            "detection_accuracy": self.detection_accuracy,
            "association_accuracy": self.association_accuracy,
            "localisation_accuracy": self.localisation_accuracy,
            "frames": self.frames,
            "objects": self.objects,
            "boxes": self.boxes,
            "identities": self.identities,
            "found_identities": self.found_identities,
            "matches": self.matches,
            "switches": self.switches,
            "misses": self.misses,
            "false_positives": self.false_positives,
            "fragmentations": self.fragmentations,
            "mostly_tracked": self.mostly_tracked,
            "partially_tracked": self.identities - self.mostly_tracked - self.mostly_lost,
            "mostly_lost": self.mostly_lost,
            "id_matches": self.id_matches,
        }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def tally(truth: Tracks, found: Tracks) -> Tally:
    """Compare the boxes that were found in a sequence with its ground truth."""
    frames = list(_frames(truth, found))
    counts = _Clear()
    for frame in frames:
        counts.add(frame)
    matches, association, overlap = _hota(frames, truth, found)
    return Tally(
        frames=len(frames),
        objects=len(truth),
        boxes=len(found),
        identities=len(np.unique(truth.ids)),
        found_identities=len(np.unique(found.ids)),
        id_matches=_id_matches(frames, truth, found),
        hota_matches=matches,
        hota_association=association,
        hota_overlap=overlap,
        **counts.to_dict(),
    )


class _Frame(NamedTuple):
    objects: Array  # numbers of identities of the ground truth, from 0
    found: Array
    overlap: Array  # (objects, found)


def _frames(truth: Tracks, found: Tracks) -> Iterator[_Frame]:
    sides = []
    for tracks in (truth, found):
        order = np.argsort(tracks.frames, kind="stable")
        _, numbers = np.unique(tracks.ids, return_inverse=True)
        sides.append((tracks.frames[order], numbers[order], tracks.boxes[order]))
    for number in np.union1d(truth.frames, found.frames):
        parts = []
        for frames, ids, boxes in sides:
            part = slice(*np.searchsorted(frames, [number, number + 1]))
            parts.append((ids[part], boxes[part]))
        (objects, object_boxes), (others, other_boxes) = parts
        yield _Frame(objects, others, iou_ltwh(object_boxes, other_boxes))


class _Clear:
    """The counts of MOTA: pairs of the previous frame are kept while they overlap."""

    def __init__(self) -> None:
        self._partners: dict[int, int] = {}  # the last match of each object
        self._seen: Counter[int] = Counter()  # number of frames of each object
        self._matched: Counter[int] = Counter()
        self._is_matched: dict[int, bool] = {}  # whether each object's last frame matched
        self._counts: Counter[str] = Counter()
        self._distance = 0.0

    def add(self, frame: _Frame) -> None:
        distances = 1 - frame.overlap
        distances[distances > MAX_DISTANCE] = np.nan
        positions = {each: at for at, each in enumerate(frame.found.tolist())}
        objects = frame.objects.tolist()
        pairs: dict[int, int] = {}  # columns by row
        for row, each in enumerate(objects):
            column = positions.get(self._partners.get(each, -1))
            if column is None or column in pairs.values():
                continue
            if not np.isnan(distances[row, column]):
                pairs[row] = column
        left = distances.copy()
        left[list(pairs)] = left[:, list(pairs.values())] = np.nan
        # the limit exceeds the sum of all costs, which maximises the number of pairs
        for row, column in zip(*map(list, assign(left, len(left) + 1.0)), strict=True):
            each, partner = objects[row], int(frame.found[column])
            self._counts["switches"] += self._partners.get(each, partner) != partner
            self._partners[each] = partner
            pairs[row] = column
        self._distance += sum(distances[row, column] for row, column in pairs.items())
        self._counts["pairs"] += len(pairs)
        self._counts["misses"] += len(objects) - len(pairs)
        self._counts["false_positives"] += len(frame.found) - len(pairs)
        for row, each in enumerate(objects):
            is_matched = row in pairs
            was_matched = self._is_matched.get(each)
            # an interruption counts once the match resumes
            self._counts["fragmentations"] += (
                is_matched and was_matched is False and self._matched[each] > 0
            )
            self._seen[each] += 1
            self._matched[each] += is_matched
            self._is_matched[each] = is_matched

    def to_dict(self) -> dict[str, Any]:
        shares = [self._matched[each] / seen for each, seen in self._seen.items()]
        return {
            "matches": self._counts["pairs"] - self._counts["switches"],
            "switches": self._counts["switches"],
            "misses": self._counts["misses"],
            "false_positives": self._counts["false_positives"],
            "fragmentations": self._counts["fragmentations"],
            "mostly_tracked": sum(each >= _MOSTLY_TRACKED for each in shares),
            "mostly_lost": sum(each < _MOSTLY_LOST for each in shares),
            "distance": float(self._distance),
        }


def _id_matches(frames: list[_Frame], truth: Tracks, found: Tracks) -> int:
    """Pair entire identities so that as many boxes as possible match."""
    together = np.zeros((len(np.unique(truth.ids)), len(np.unique(found.ids))))
    for frame in frames:
        together[np.ix_(frame.objects, frame.found)] += 1 - frame.overlap <= MAX_DISTANCE
    return int(together[assign(-together, 0.0)].sum())


def _hota(frames: list[_Frame], truth: Tracks, found: Tracks) -> tuple[Array, Array, Array]:
    """Return the matches, and the sums of their associations and IoUs, for each of ALPHAS."""
    _, objects = np.unique(truth.ids, return_counts=True)
    _, others = np.unique(found.ids, return_counts=True)
    potential = np.zeros((len(objects), len(others)))
    for frame in frames:
        overlap = frame.overlap
        union = overlap.sum(axis=0) + overlap.sum(axis=1)[:, None] - overlap
        share = np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)
        potential[np.ix_(frame.objects, frame.found)] += share
    boxes = objects[:, None] + others  # total of each pair of identities
    alignment = potential / (boxes - potential)
    together = np.zeros((len(ALPHAS), *potential.shape))  # matches of each pair of identities
    overlap_sum = _zeros()
    for frame in frames:
        at = np.ix_(frame.objects, frame.found)
        rows, columns = assign(-alignment[at] * frame.overlap, 0.0)
        overlap = frame.overlap[rows, columns]
        is_match = overlap >= ALPHAS[:, None] - np.finfo(float).eps
        together[:, frame.objects[rows], frame.found[columns]] += is_match
        overlap_sum += (is_match * overlap).sum(axis=1)
    association = together * (together / np.maximum(1, boxes - together))
    return together.sum(axis=(1, 2)), association.sum(axis=(1, 2)), overlap_sum
