"""Evaluate the bundled model on unseen symbols, and compare it with code readers.

python tools/codes/evaluate.py --scenes 2000 --negatives FOLDER… prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from distractors import HELD_OUT, load_photographs  # noqa: E402
from peers import PEERS, Located  # noqa: E402
from scenes import Code, SceneGenerator  # noqa: E402
from scoring import Rows, average_precision, overlaps  # noqa: E402
from symbols import NAMES  # noqa: E402

import engine  # noqa: E402
from engine import bundled  # noqa: E402

_BATCH = 8
_MIN_AP_SCORE = 0.001  # of boxes that count for average precision
_DEFAULT_THRESHOLD = 0.25  # of `detect`
_SUFFIXES = {".jpg", ".jpeg", ".png"}


@dataclass(frozen=True)
class Evaluated:
    """The codes of a scene, our boxes, and the results of each peer (None: not run)."""

    codes: tuple[Code, ...]
    found: Rows  # left, top, right, bottom, score, class
    peers: tuple[Located, ...] | None

    def truth(self) -> Rows:
        rows = [(*code.box, code.kind) for code in self.codes]
        return np.array(rows, np.float64).reshape(-1, 5)


def main() -> None:
    options = _options()
    numbers = [range(i, options.scenes, options.processes) for i in range(options.processes)]
    evaluate = partial(_evaluate, options.seed, options.peer_scenes, options.photos)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        seen = [each for part in pool.map(evaluate, numbers) for each in part]
    print(f"{len(seen)} scenes of seed {options.seed}, {sum(len(s.codes) for s in seen)} codes\n")
    _print_precision(seen)
    for title, key in _BUCKETS:
        _print_buckets(seen, title, key)
    _print_peers(seen)
    _print_false_alarms(seen, options.photos, options.negatives)
    _print_time(options.seed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=2000)
    parser.add_argument("--peer-scenes", type=int, default=2000, help="of them, for the peers")
    parser.add_argument("--seed", type=int, default=9001, help="training uses 100 and above")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    parser.add_argument("--negatives", type=Path, nargs="*", default=[], help="without codes")
    return parser.parse_args()


def _load(threads: int, threshold: float, batch: int = 1) -> engine.Detector:
    model = bundled.default_model()
    assert model is not None, "weights/ holds no model"
    more = {"device": "cpu", "threads": threads, "threshold": threshold, "batch": batch}
    return engine.load(model.cfg, model.weights, model.names, **more)


def _evaluate(
    seed: int, peer_scenes: int, folder: Path | None, numbers: Sequence[int]
) -> list[Evaluated]:
    cv2.setNumThreads(1)
    generator = SceneGenerator(
        seed, photographs=load_photographs(folder)[::HELD_OUT] if folder else None
    )
    finders = [make() for _, make, _ in PEERS]
    evaluated: list[Evaluated] = []
    with _load(1, _MIN_AP_SCORE, _BATCH) as detector:
        for at in range(0, len(numbers), _BATCH):
            part = numbers[at : at + _BATCH]
            scenes = [generator.scene(number) for number in part]
            results = detector([np.ascontiguousarray(s.picture[..., ::-1]) for s in scenes])
            for number, scene, result in zip(part, scenes, results, strict=True):
                has_peers = number < peer_scenes
                peers = tuple(find(scene.picture) for find in finders) if has_peers else None
                evaluated.append(Evaluated(scene.codes, _rows(result), peers))
    return evaluated


def _rows(result: engine.Result) -> Rows:
    rows = [(*each.box, each.score, each.class_id) for each in result]
    return np.array(rows, np.float64).reshape(-1, 6)


# ---------------------------------------------------------------- matching


def _is_detected(scene: Evaluated) -> list[bool]:
    """Return for each code whether a box of its class above the threshold has an IoU of 0.5."""
    rows = scene.found[scene.found[:, 4] >= _DEFAULT_THRESHOLD]
    truth = scene.truth()
    overlap = overlaps(truth[:, :4], rows[:, :4]) * (truth[:, 4:] == rows[None, :, 5])
    return [bool((values >= 0.5).any()) for values in overlap]


def _is_located(codes: Sequence[Code], places: Iterable[tuple[int, Rows]]) -> list[bool]:
    """Return for each code whether the centre of a result of its class lies in its box.

    This is more lenient than IoU.
    """
    centres = [(kind, corners.mean(axis=0)) for kind, corners in places]
    return [
        any(kind == code.kind and _is_inside(centre, code.box) for kind, centre in centres)
        for code in codes
    ]


def _is_inside(point: Rows, box: tuple[float, float, float, float]) -> bool:
    return bool(box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3])


# ---------------------------------------------------------------- tables


def _print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"| {' | '.join(head)} |")
    print(f"| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def _print_precision(seen: Sequence[Evaluated]) -> None:
    found, truth = [s.found for s in seen], [s.truth() for s in seen]
    precision = [average_precision(found, truth, kind) for kind in range(len(NAMES))]
    pairs = [(code, hit) for s in seen for code, hit in zip(s.codes, _is_detected(s), strict=True)]
    counts = [[hit for code, hit in pairs if code.kind == kind] for kind in range(len(NAMES))]
    counts.insert(0, [hit for _, hit in pairs])
    precision.insert(0, float(np.mean(precision)))
    _print_table(
        ("", "all", *NAMES),
        (
            ("codes", *(str(len(hits)) for hits in counts)),
            ("AP50", *(f"{value:.3f}" for value in precision)),
            ("recall", *(f"{np.mean(hits):.3f}" for hits in counts)),
        ),
    )


Key = tuple[Callable[[Code], float], tuple[float, ...]]
_BUCKETS: tuple[tuple[str, Key], ...] = (
    (
        "longer side, pixels",
        (lambda c: max(c.box[2] - c.box[0], c.box[3] - c.box[1]), (0, 32, 64, 128, 256)),
    ),
    ("module, pixels", (lambda c: c.module, (0, 1, 1.5, 2.5, 5))),
    ("angle, degrees", (lambda c: c.angle, (0, 5, 15, 30))),
    ("blur, modules", (lambda c: c.blur, (0, 0.25, 0.5, 1))),
)


def _print_buckets(seen: Sequence[Evaluated], title: str, key: Key) -> None:
    value, edges = key
    hits: list[list[bool]] = [[] for _ in edges]
    for each in seen:
        for code, hit in zip(each.codes, _is_detected(each), strict=True):
            hits[int(np.searchsorted(edges, value(code), side="right")) - 1].append(hit)
    ends = [f"{a:g} to {b:g}" for a, b in pairwise(edges)]
    _print_table(
        (title, *ends, f"from {edges[-1]:g}"),
        (
            ("codes", *(str(len(part)) for part in hits)),
            ("recall", *(f"{np.mean(part):.3f}" if part else "" for part in hits)),
        ),
    )


def _print_peers(seen: Sequence[Evaluated]) -> None:
    compared = [s for s in seen if s.peers is not None]
    if not compared:
        return
    print(f"recall on {len(compared)} scenes; for peers a centre in the code's box is enough\n")
    ours = [hit for s in compared for hit in _is_detected(s)]
    kinds = np.array([code.kind for s in compared for code in s.codes])
    rows = [("ours", *_recalls(ours, kinds, range(len(NAMES))))]
    for index, (name, _, claims) in enumerate(PEERS):
        located = [hit for s in compared for hit in _is_located(s.codes, (s.peers or ())[index])]
        rows.append((name, *_recalls(located, kinds, claims)))
    _print_table(("", *NAMES), rows)


def _recalls(hits: Sequence[bool], kinds: Rows, claims: Iterable[int]) -> list[str]:
    every = np.array(hits)
    return [
        f"{every[kinds == kind].mean():.3f}" if kind in claims else "" for kind in range(len(NAMES))
    ]


def _print_false_alarms(
    seen: Sequence[Evaluated], held_out: Path | None, folders: Sequence[Path]
) -> None:
    empty = [s for s in seen if not s.codes]
    alarms = [int((s.found[:, 4] >= _DEFAULT_THRESHOLD).sum()) for s in empty]
    rows = [("scenes without codes", *_count_alarms(alarms))]
    with _load(2, _DEFAULT_THRESHOLD) as detector:
        if held_out:
            pictures = load_photographs(held_out)[::HELD_OUT]
            found = detector([np.ascontiguousarray(each[..., ::-1]) for each in pictures])
            rows.append(("photographs held out", *_count_alarms([len(result) for result in found])))
        for folder in folders:
            paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
            results = [(path, detector(path)) for path in paths]
            rows.append((folder.name, *_count_alarms([len(result) for _, result in results])))
            for path, result in results:
                for each in result:
                    print(f"{path.name}: {each.label} {each.score:.2f}", file=sys.stderr)
    _print_table(("false alarms", "pictures", "boxes", "pictures with any"), rows)


def _count_alarms(alarms: Sequence[int]) -> tuple[str, str, str]:
    return str(len(alarms)), str(sum(alarms)), str(sum(count > 0 for count in alarms))


def _print_time(seed: int) -> None:
    generator = SceneGenerator(seed, each=4)
    pictures = [generator.scene(n).picture[..., ::-1].copy() for n in range(20)]
    with _load(2, _DEFAULT_THRESHOLD) as detector:
        detector(pictures[0])
        times = []
        for picture in pictures * 3:
            start = time.perf_counter()
            detector(picture)
            times.append((time.perf_counter() - start) * 1e3)
    print(f"CPU, 2 threads: {statistics.median(times):.1f} ms a picture (median of {len(times)})")


if __name__ == "__main__":
    main()
