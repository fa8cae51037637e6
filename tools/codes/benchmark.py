"""Measure a model on the photographs of pinhole.py, and on pictures without codes.

python tools/codes/benchmark.py --backgrounds FOLDER… --negatives FOLDER… prints tables in Markdown.
With --labelled FOLDER it measures pictures of your own instead, labelled as --format says: the text
files of darknet, or a public set: BarBeR (the folder above its annotations and pictures), or the QR
codes of BoofCV.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

import labelled  # noqa: E402
import numpy as np  # noqa: E402
from photograph import NAMES, Photograph, PictureError, Target, find_pictures  # noqa: E402
from scoring import Rows, average_precision, overlaps  # noqa: E402

import engine  # noqa: E402
from engine import bundled  # noqa: E402

_OF_SCENES = {"cv2": "opencv-python-headless", "zxingcpp": "zxing-cpp"}  # modules, packages
_MIN_AP_SCORE = 0.005  # of boxes that count for average precision
_DEFAULT_THRESHOLD = 0.25  # of `detect`
_FINEST = 0.35  # pixels of the input; a code of smaller modules is a grey patch
_LEAST_CUT_OUT = 0.15  # size of the smallest codes that are cut out
_SIZES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7)  # lower ends of the bands of a code's size


@dataclass(frozen=True)
class Measured:
    targets: tuple[Target, ...]
    found: Rows  # left, top, right, bottom, score, class

    def truth(self) -> Rows:
        rows = [(*each.box, each.kind) for each in self.targets]
        return np.array(rows, np.float64).reshape(-1, 5)

    def overlaps(self) -> Rows:
        """Return the largest IoU of each code with a box of its class above the threshold."""
        rows, truth = self.found[self.found[:, 4] >= _DEFAULT_THRESHOLD], self.truth()
        every = overlaps(truth[:, :4], rows[:, :4]) * (truth[:, 4:] == rows[None, :, 5])
        return every.max(axis=1, initial=0.0)


def main() -> None:
    options = _options()
    find_pictures([*options.backgrounds, *options.negatives])  # which are needed at the end only
    if not options.labelled:
        _check_packages()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        parts = pool.map(partial(_measure, options), range(options.processes))
    by_size = {
        size: [each for part in parts for each in part[index]]
        for index, size in enumerate(options.sizes or [0])
    }
    seen = next(iter(by_size.values()))
    print(f"{len(seen)} pictures, {sum(len(each.targets) for each in seen)} codes\n")
    print_kinds(seen)
    if options.format == "barber":
        print_dimensions(seen)
    print_sizes(seen)
    for title, value, edges in _PROPERTIES:
        print_bands(seen, title, value, edges)
    if len(by_size) > 1:
        print_inputs(by_size)
    print_alarms(options)


def _check_packages() -> None:
    """Refuse to draw scenes without the packages for it, before processes start."""
    if missing := [package for name, package in _OF_SCENES.items() if not find_spec(name)]:
        sys.exit(f"Error: scenes need packages. Run: pip install {' '.join(missing)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cfg", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--scenes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--sizes", type=int, nargs="*", help="of the input; the first for the tables"
    )
    parser.add_argument("--backgrounds", type=Path, nargs="*", default=[])
    parser.add_argument("--negatives", type=Path, nargs="*", default=[], help="without codes")
    parser.add_argument(
        "--least-side",
        type=int,
        default=0,
        help="of --negatives, in pixels; smaller ones are left out",
    )
    parser.add_argument("--cut-out", action="store_true", help="measure each code cut out closely")
    parser.add_argument("--labelled", type=Path, help="a folder of pictures and label files")
    parser.add_argument("--format", choices=labelled.READERS, default="darknet")
    return parser.parse_args()


def load(options: argparse.Namespace, threshold: float, size: int | None = None) -> engine.Detector:
    model = bundled.default_model()
    assert model is not None, "weights/ holds no model"
    return engine.load(
        options.cfg or model.cfg,
        options.weights or model.weights,
        model.names,
        device="cpu",
        threads=1,
        precision=options.precision,
        threshold=threshold,
        size=size,
    )


def _measure(options: argparse.Namespace, first: int) -> list[list[Measured]]:
    """Measure every picture of one process at every size of the input."""
    measured: list[list[Measured]] = [[] for _ in options.sizes or [0]]
    with ExitStack() as stack:
        detectors = [
            stack.enter_context(load(options, _MIN_AP_SCORE, size or None))
            for size in options.sizes or [0]
        ]
        for photograph in _photographs(options, first, options.processes):
            for detector, results in zip(detectors, measured, strict=True):
                results.append(Measured(photograph.targets, rows(detector(photograph.pixels))))
    return measured


def _photographs(options: argparse.Namespace, first: int, step: int) -> Iterator[Photograph]:
    for photograph in _whole_photographs(options, first, step):
        yield from _cut_out(photograph) if options.cut_out else [photograph]


def _whole_photographs(options: argparse.Namespace, first: int, step: int) -> Iterator[Photograph]:
    if options.labelled:
        yield from labelled.photographs(options.format, options.labelled, first=first, step=step)
        return
    from pinhole import PinholeScenes  # needs _OF_SCENES

    scenes = PinholeScenes(options.seed, find_pictures(options.backgrounds))
    for number in range(first, options.scenes, step):
        yield scenes.scene(number)


def _cut_out(photograph: Photograph) -> Iterator[Photograph]:
    """Yield each code that is not small alone, without what surrounds it."""
    for target in photograph.targets:
        left, top, right, bottom = (max(0, round(edge)) for edge in target.box)
        pixels = np.ascontiguousarray(photograph.pixels[top:bottom, left:right])
        height, width = pixels.shape[:2]
        if target.size >= _LEAST_CUT_OUT and pixels.size:  # labels may lie outside the picture
            yield Photograph(pixels, (replace(target, box=(0, 0, width, height), size=1.0),))


def rows(result: engine.Result) -> Rows:
    found = [(*each.box, each.score, each.class_id) for each in result]
    return np.array(found, np.float64).reshape(-1, 6)


# ---------------------------------------------------------------- tables


Pair = tuple[Target, float]  # a code, and its largest IoU


def _pairs(seen: Sequence[Measured]) -> list[Pair]:
    return [
        pair for each in seen for pair in zip(each.targets, each.overlaps().tolist(), strict=True)
    ]


def _recall(pairs: Iterable[Pair]) -> str:
    hits = [overlap >= 0.5 for _, overlap in pairs]
    return f"{np.mean(hits):.3f}" if hits else ""


def _print_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    print(f"| {' | '.join(head)} |")
    print(f"| --- |{' ---: |' * (len(head) - 1)}")
    for line in lines:
        print(f"| {' | '.join(line)} |")
    print(flush=True)


def print_kinds(seen: Sequence[Measured]) -> None:
    found, truth = [each.found for each in seen], [each.truth() for each in seen]
    precision = [average_precision(found, truth, kind) for kind in range(len(NAMES))]
    pairs = _pairs(seen)
    kinds = [pairs, *([p for p in pairs if p[0].kind == kind] for kind in range(len(NAMES)))]
    matches = [[overlap for _, overlap in part if overlap >= 0.5] for part in kinds]
    _print_table(
        ("", "all", *NAMES),
        (
            ("codes", *(str(len(part)) for part in kinds)),
            ("AP50", *(f"{value:.3f}" for value in (float(np.nanmean(precision)), *precision))),
            ("recall", *(_recall(part) for part in kinds)),
            ("mean IoU", *(f"{np.mean(part):.3f}" if part else "" for part in matches)),
        ),
    )


def print_dimensions(seen: Sequence[Measured]) -> None:
    """Print AP50 of linear and two-dimensional codes, the two classes of BarBeR's tables."""
    found, truth = [each.found.copy() for each in seen], [each.truth() for each in seen]
    for array in (*found, *truth):
        array[:, -1] = labelled.by_dimension(array[:, -1])
    linear, square = (average_precision(found, truth, kind) for kind in (0, 1))
    mean = float(np.nanmean([linear, square]))
    values = (f"{value:.3f}" for value in (mean, linear, square))
    _print_table(("", "mean", "1-D", "2-D"), [("AP50", *values)])


def print_sizes(seen: Sequence[Measured]) -> None:
    """Print recall by kind and by the code's longer side, relative to the picture's."""
    pairs = _pairs(seen)
    bands = [int(np.searchsorted(_SIZES, target.size, side="right")) - 1 for target, _ in pairs]
    ends = [*(f"to {100 * end:g} %" for end in _SIZES[1:]), "to 100 %"]
    lines = [("codes", *(str(bands.count(band)) for band in range(len(_SIZES))))]
    for kind, name in enumerate(NAMES):
        parts: list[list[Pair]] = [[] for _ in _SIZES]
        for band, pair in zip(bands, pairs, strict=True):
            if pair[0].kind == kind:
                parts[band].append(pair)
        lines.append((name, *(_recall(part) for part in parts)))
    fine = [target.module < _FINEST for target, _ in pairs]
    shares = [
        [is_fine for is_fine, own in zip(fine, bands, strict=True) if own == band]
        for band in range(len(_SIZES))
    ]
    counts = (f"{np.mean(part):.2f}" if part else "" for part in shares)
    lines.append((f"share with modules below {_FINEST:g} pixels", *counts))
    _print_table(("longer side", *ends), lines)


_PROPERTIES: tuple[tuple[str, Callable[[Target], float], tuple[float, ...]], ...] = (
    ("angle, degrees", lambda t: t.angle, (0, 5, 15, 30)),
    ("tilt, degrees", lambda t: t.tilt, (0, 15, 30, 45)),
    ("blur, pixels of the input", lambda t: t.blur, (0, 0.3, 0.7, 1.2)),
    ("contrast", lambda t: t.contrast, (0, 0.15, 0.3, 0.5)),
    ("curvature, degrees", lambda t: t.curvature, (0, 15, 60, 100)),
    ("modules, pixels of the input", lambda t: t.module, (0, _FINEST, 0.5, 1, 2)),
)


def print_bands(
    seen: Sequence[Measured],
    title: str,
    value: Callable[[Target], float],
    edges: tuple[float, ...],
) -> None:
    parts: list[list[Pair]] = [[] for _ in edges]
    for pair in _pairs(seen):
        parts[int(np.searchsorted(edges, value(pair[0]), side="right")) - 1].append(pair)
    _print_table(
        (title, *(f"from {edge:g}" for edge in edges)),
        (
            ("codes", *(str(len(part)) for part in parts)),
            ("recall", *(_recall(part) for part in parts)),
        ),
    )


def print_inputs(by_size: dict[int, list[Measured]]) -> None:
    lines = []
    for size, seen in by_size.items():
        pairs = _pairs(seen)
        kinds = ([p for p in pairs if p[0].kind == kind] for kind in range(len(NAMES)))
        lines.append((str(size), _recall(pairs), *(_recall(part) for part in kinds)))
    _print_table(("recall at an input of", "all", *NAMES), lines)


def print_alarms(options: argparse.Namespace) -> None:
    lines = []
    with load(options, _DEFAULT_THRESHOLD) as detector:
        for folder in options.negatives:
            counts = []
            for path in find_pictures([folder]):
                try:
                    result = detector(path)
                except engine.ImageError as error:
                    print(f"Error: {error}", file=sys.stderr)
                    continue
                if min(result.size) < options.least_side:
                    continue
                counts.append(len(result))
                for each in result:
                    print(f"{path.name}: {each.label} {each.score:.2f}", file=sys.stderr)
            some = sum(count > 0 for count in counts)
            lines.append((folder.name, str(len(counts)), str(sum(counts)), str(some)))
    if lines:
        _print_table(("false alarms", "pictures", "boxes", "pictures with any"), lines)


if __name__ == "__main__":
    try:
        main()
    except PictureError as error:
        sys.exit(f"Error: {error}")
