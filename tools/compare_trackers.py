"""Compare engine.track with the `trackers` library of Roboflow on the same boxes.

    pip install trackers
    python tools/compare_trackers.py FOLDER

FOLDER holds ground truth of MOTChallenge, NAME/gt.txt or NAME/gt/gt.txt, such as TUD-Campus and
TUD-Stadtmitte, which the source package of motmetrics has. Boxes as a detector would find them are
made from it: with noise, misses, objects that are hidden for a while and get low scores, and boxes
where nothing is. Sequences with 15, 40 and 100 moving objects are made as well. Each tracker gets
the same boxes from a score of 0.1 on. "engine, as trackers" uses defaults of `trackers`: the scores
from which boxes are matched and start tracks, and the time after which a hidden object is given up.
Without `trackers` only our own figures are printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from engine.evaluate.mot import Tally, Tracks, tally
from engine.evaluate.mot_files import read_tracks
from engine.track import NO_TRACK, Tracker

_LOW = 0.1  # the lowest score of boxes; `trackers` takes any that it is given
_HIGH, _NEW = 0.6, 0.7  # the defaults of `trackers`
_RATE = 25
_LOST_FRAMES = 30  # the default of `trackers`, at 30 frames per second

Array = Any
Update = Callable[[Array, Array], tuple[Array, Array]]  # boxes, scores -> boxes, identities


class Level(NamedTuple):
    """How bad a detector is."""

    misses: float  # the share of objects
    false_boxes: float  # in a frame
    noise: float  # of edges, in sides


_LEVELS = (Level(0.05, 0.5, 0.02), Level(0.1, 1, 0.04), Level(0.2, 2, 0.06))
_MADE = ((15, 300), (40, 300), (100, 200))  # objects, frames


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="ground truth")
    parser.add_argument("--runs", type=int, default=6, help="with other noise, for each level (6)")
    options = parser.parse_args()
    truths = _truths(options.folder)
    makers: dict[str, Callable[[], Update]] = {
        "engine, its defaults": _ours,
        "engine, as trackers": _ours_alike,
    }
    if find_spec("trackers"):
        makers["trackers"] = _theirs
    else:
        print("trackers is not installed. Run: pip install trackers", file=sys.stderr)
    names = ("MOTA", "IDF1", "HOTA", "switches", "ms a frame")
    print(f"| sequences | tracker | {' | '.join(names)} |\n| --- | --- |{' ---: |' * len(names)}")
    for group, runs in _groups(truths, options.runs):
        for tracker, make in makers.items():
            tallies, seconds = zip(*(_follow(make(), *run) for run in runs), strict=True)
            figures = np.mean([_figures(each) for each in tallies], axis=0)
            milliseconds = 1e3 * sum(seconds) / sum(each.frames for each in tallies)
            cells = [*(f"{each:.1f}" for each in figures), f"{milliseconds:.2f}"]
            print(f"| {group} | {tracker} | {' | '.join(cells)} |", flush=True)


def _figures(found: Tally) -> tuple[float, ...]:
    return 100 * found.mota, 100 * found.idf1, 100 * found.hota, found.switches


# ------------------------------------------------------------ sequences


def _truths(folder: Path) -> dict[str, Tracks]:
    files = sorted([*folder.glob("*/gt.txt"), *folder.glob("*/gt/gt.txt")])
    if not files:
        sys.exit(f"{folder}: expected NAME/gt.txt or NAME/gt/gt.txt, found none")
    return {each.relative_to(folder).parts[0]: read_tracks(each, is_truth=True) for each in files}


def _groups(
    truths: dict[str, Tracks], runs: int
) -> Iterator[tuple[str, list[tuple[Tracks, Array]]]]:
    """Yield ground truth and boxes (n, 6): frame, left, top, width, height, score."""
    for name, truth in truths.items():
        found = [
            (truth, _found(truth, level, seed=100 * number + run))
            for number, level in enumerate(_LEVELS)
            for run in range(runs)
        ]
        yield f"{name} ({len(found)} runs)", found
    for seed, (objects, frames) in enumerate(_MADE):
        truth = _made(seed, objects, frames)
        found = [(truth, _found(truth, _LEVELS[1], seed=10 + seed, size=(1920, 1080)))]
        yield f"made: {objects} objects", found


def _found(truth: Tracks, level: Level, *, seed: int, size: tuple[int, int] = (640, 480)) -> Array:
    """Return boxes as a detector would find them."""
    random = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    hidden_until: dict[int, int] = {}
    for frame in range(int(truth.frames.min()), int(truth.frames.max()) + 1):
        for row in np.flatnonzero(truth.frames == frame):
            who = int(truth.ids[row])
            if hidden_until.get(who, 0) < frame and random.random() < 0.02:
                hidden_until[who] = frame + int(random.integers(5, 20))
            is_hidden = hidden_until.get(who, -1) >= frame
            if random.random() < (0.4 if is_hidden else level.misses):
                continue
            score = random.normal(*((0.35, 0.15) if is_hidden else (0.85, 0.1)))
            left, top, width, height = truth.boxes[row]
            moves = random.normal(0, 1, 4) * (width, height, width, height) * level.noise
            box = (left + moves[0], top + moves[1])
            sides = (max(2, width + moves[2]), max(2, height + moves[3]))
            rows.append((frame, *box, *sides, np.clip(score, 0.02, 0.99)))
        for _ in range(random.poisson(level.false_boxes)):
            width, height = random.uniform(20, 120, 2)
            place = random.uniform(0, size[0] - width), random.uniform(0, size[1] - height)
            rows.append((frame, *place, width, height, np.clip(random.beta(2, 5), 0.02, 0.99)))
    return np.array(rows)


def _made(seed: int, objects: int, frames: int) -> Tracks:
    """Return objects that wander, turn around at the edges, come late and go early."""
    random = np.random.default_rng(seed)
    size = (1920, 1080)
    rows: list[tuple[float, ...]] = []
    for who in range(1, objects + 1):
        start = int(random.integers(0, frames // 2)) if who > objects // 2 else 0
        end = min(frames, start + int(random.integers(frames // 3, frames)))
        height = random.uniform(60, 220)
        sides = np.array([height * random.uniform(0.35, 0.6), height])
        most = size - sides
        place = random.uniform([0, 0], most)
        speed = random.normal(0, 4, 2) * (1, 0.3)
        for frame in range(start, end):
            speed += random.normal(0, 0.15, 2)
            place = place + speed
            speed[(place <= 0) | (place >= most)] *= -1
            place = np.clip(place, 0, most)
            rows.append((frame + 1, who, *place, *sides))
    table = np.array(sorted(rows))
    return Tracks(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])


# ------------------------------------------------------------ trackers


def _follow(update: Update, truth: Tracks, found: Array) -> tuple[Tally, float]:
    """Return the tally of a tracker on these boxes, and its processor time in seconds."""
    seconds = 0.0
    rows: list[tuple[float, ...]] = []
    found = found[found[:, 5] >= _LOW]
    for frame in range(int(truth.frames.min()), int(truth.frames.max()) + 1):
        some = found[found[:, 0] == frame]
        edges = np.concatenate([some[:, 1:3], some[:, 1:3] + some[:, 3:5]], axis=1)
        start = time.process_time()
        boxes, ids = update(edges, some[:, 5])
        seconds += time.process_time() - start
        for (left, top, right, bottom), who in zip(boxes, ids, strict=True):
            if who != NO_TRACK:
                rows.append((frame, who, left, top, right - left, bottom - top))
    table = np.array(rows).reshape(-1, 6)
    tracks = Tracks(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])
    return tally(truth, tracks), seconds


def _ours() -> Update:
    tracker = Tracker(rate=_RATE)
    return lambda boxes, scores: (boxes, tracker.update(boxes, scores))


def _ours_alike() -> Update:
    """Return a tracker with the thresholds and the patience of `trackers`."""
    lost = _LOST_FRAMES / 30
    tracker = Tracker(high=_HIGH, new=_NEW, low=_LOW, lost_seconds=lost, rate=_RATE)
    return lambda boxes, scores: (boxes, tracker.update(boxes, scores))


def _theirs() -> Update:
    import supervision
    from trackers import ByteTrackTracker

    warnings.filterwarnings("ignore", module="trackers|supervision")
    tracker = ByteTrackTracker(frame_rate=_RATE, lost_track_buffer=_LOST_FRAMES)

    def update(boxes: Array, scores: Array) -> tuple[Array, Array]:
        classes = np.zeros(len(boxes), int)
        result = tracker.update(supervision.Detections(boxes, confidence=scores, class_id=classes))
        return result.xyxy, result.tracker_id

    return update


if __name__ == "__main__":
    main()
