"""Measure what tiles change: small objects found, boxes by batch, memory.

python tools/measure_tiles.py pictures FOLDER --cfg NET.cfg --weights NET.weights --names NET.names
    composes 16 labelled pictures into each large one and prints the average precision of the single
    pictures, of the large ones without tiles, and with --tiles auto
python tools/measure_tiles.py codes [--scenes 20]
    prints the recall of small codes in drawn scenes of 4000 x 3000; this needs
    pip install opencv-python-headless zxing-cpp
python tools/measure_tiles.py memory [--count 200]
    prints the memory of a run over pictures of 4000 x 3000, and of a run over a quarter of them
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY), str(_REPOSITORY / "tools/codes")]

import numpy as np  # noqa: E402

import engine  # noqa: E402
from engine.evaluate.examples import Detections, Example, Objects  # noqa: E402
from engine.evaluate.score import score  # noqa: E402
from engine.outputs import labelled_pictures  # noqa: E402
from engine.vision.image import read  # noqa: E402

_GRID = 4  # pictures along each side of a composed one
_LARGE = (4000, 3000)
_CELLS = (4, 4)  # photographs in a scene of codes
_SIDES = (8, 32)  # of codes, in pixels of the network's input when the picture is not cut
_BATCHES = (1, 3, 8)
_MIN_SCORE = 0.005  # of boxes that count for average precision

Pixels = Any  # (height, width, 3) uint8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["pictures", "codes", "memory"])
    parser.add_argument("folder", nargs="?", type=Path, help="pictures with label files of darknet")
    parser.add_argument("--cfg", type=Path, help="a network (the bundled one for codes)")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--names", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiles", default="auto")
    parser.add_argument("--overlap", type=float, default=0.2)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    {"pictures": measure_pictures, "codes": measure_codes, "memory": measure_memory}[options.what](
        options
    )


def load(options: argparse.Namespace, **more: Any) -> engine.Detector:
    return engine.load(
        options.cfg, options.weights, options.names, device=options.device, **{"batch": 8, **more}
    )


# ---------------------------------------------------------------- pictures


def measure_pictures(options: argparse.Namespace) -> None:
    if options.folder is None:
        sys.exit("pictures: expected a FOLDER of labelled pictures")
    cut = {"tiles": options.tiles, "overlap": options.overlap}
    with load(options, threshold=_MIN_SCORE) as detector:
        truth = labelled_pictures.read(str(options.folder), detector.labels)
        single = [(read(each.path).pixels, each.objects) for each in truth.entries]
        labelled = [(pixels, objects(pixels.shape[1::-1])) for pixels, objects in single]
        large = list(_composed(labelled))
        sides = " x ".join(map(str, large[0][0].shape[1::-1]))
        print(f"{len(labelled)} pictures, {len(large)} composed ones of {sides}")
        rows = [
            ("single pictures", labelled, {}),
            ("composed, not cut", large, {}),
            (f"composed, --tiles {options.tiles}", large, cut),
        ]
        base = 0.0
        for title, pictures, settings in rows:
            examples = [
                Example(number, pixels.shape[1::-1], objects, _detect(detector, pixels, settings))
                for number, (pixels, objects) in enumerate(pictures)
            ]
            summary = score(examples, detector.labels).summary
            figures = {name: value or 0.0 for name, value in summary.items()}
            base = base or figures["AP"]
            print(f"{title:24}", *(f"{name} {figures[name]:.3f}" for name in _SHOWN), end="  ")
            print(f"{figures['AP'] / base:.3f} of the first", flush=True)
    _compare_batches(options, [pixels for pixels, _ in large])


_SHOWN = ("AP", "AP50", "AP75", "AP small", "AP medium", "AP large")


def _detect(detector: engine.Detector, pixels: Pixels, settings: dict[str, Any]) -> Detections:
    return Detections.from_result(detector(pixels, **settings))


def _composed(
    labelled: Sequence[tuple[Pixels, Objects]],
) -> Iterator[tuple[Pixels, Objects]]:
    """Yield large pictures, each of 4 x 4 pictures in cells of one size, on grey."""
    height, width = np.max([pixels.shape[:2] for pixels, _ in labelled], axis=0)
    for start in range(0, len(labelled), _GRID**2):
        whole = np.full((_GRID * height, _GRID * width, 3), 128, np.uint8)
        boxes, class_ids = [], []
        for number, (pixels, objects) in enumerate(labelled[start : start + _GRID**2]):
            top, left = number // _GRID * height, number % _GRID * width
            whole[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
            boxes += [each + np.array([left, top, 0, 0]) for each in objects.boxes]
            class_ids += objects.class_ids.tolist()
        yield whole, Objects.of(boxes, class_ids)


def _compare_batches(options: argparse.Namespace, pictures: Sequence[Pixels]) -> None:
    """Print whether boxes depend on the batch size."""
    found = []
    for batch in _BATCHES:
        with load(options, batch=batch, tiles=options.tiles, overlap=options.overlap) as detector:
            results = detector(list(pictures))
            found.append([(each.xywhn.tolist(), each.scores.tolist()) for each in results])
    are_equal = all(each == found[0] for each in found)
    sizes = ", ".join(map(str, _BATCHES))
    count = sum(len(scores) for _, scores in found[0])
    print(f"batches of {sizes}: {count} boxes, {'all equal' if are_equal else 'DIFFERENT'}")


# ---------------------------------------------------------------- codes


def measure_codes(options: argparse.Namespace) -> None:
    from photograph import NAMES
    from scoring import overlaps

    cut = {"tiles": options.tiles, "overlap": options.overlap}
    rows = {"not cut": {}, f"--tiles {options.tiles}": cut}
    seen: dict[str, list[tuple[int, bool]]] = {title: [] for title in rows}
    false = dict.fromkeys(rows, 0)
    seconds = dict.fromkeys(rows, 0.0)
    with load(options) as detector:
        for number in range(options.scenes):
            pixels, targets = _scene_of_codes(options.seed, number, detector.size[0])
            boxes = np.array([box for _, box in targets])
            kinds = np.array([kind for kind, _ in targets])
            for title, settings in rows.items():
                start = time.perf_counter()
                result = detector(pixels, **settings)
                seconds[title] += time.perf_counter() - start
                overlap = overlaps(boxes, result.xyxy.astype(float).reshape(-1, 4))
                overlap *= kinds[:, None] == result.class_ids[None]
                hits = overlap.max(axis=1, initial=0) >= 0.5
                seen[title] += zip(kinds.tolist(), hits.tolist(), strict=True)
                false[title] += int((overlap.max(axis=0, initial=0) < 0.5).sum())
    first = next(iter(seen.values()))
    print(f"{options.scenes} scenes of 4000 x 3000, {len(first)} codes\n")
    print(f"| recall | all | {' | '.join(NAMES)} | other boxes | seconds a scene |")
    print(f"| --- |{' ---: |' * (len(NAMES) + 3)}")
    for title, pairs in seen.items():
        kinds_of = [[hit for kind, hit in pairs if kind == each] for each in range(len(NAMES))]
        recalls = [[hit for _, hit in pairs], *kinds_of]
        cells = [f"{np.mean(each):.3f}" if each else "" for each in recalls]
        cells += [str(false[title]), f"{seconds[title] / options.scenes:.2f}"]
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


Code = tuple[int, tuple[float, float, float, float]]


def _scene_of_codes(seed: int, number: int, side: int) -> tuple[Pixels, list[Code]]:
    """Return 16 photographs of pinhole.py next to each other, with codes of _SIDES."""
    import pinhole

    random = np.random.default_rng((seed, number))
    scenes = pinhole.PinholeScenes(seed)
    width, height = _LARGE[0] // _CELLS[0], _LARGE[1] // _CELLS[1]
    whole = np.empty((_LARGE[1], _LARGE[0], 3), np.uint8)
    codes: list[Code] = []
    low, high = (np.log(each * _LARGE[0] / side / pinhole.LONGER_SIDE) for each in _SIDES)
    for top in range(0, _LARGE[1], height):
        for left in range(0, _LARGE[0], width):
            light = scenes.background(random, width, height)
            sizes = np.exp(random.uniform(low, high, random.integers(1, 3))).tolist()
            photograph = scenes.photograph(random, light, sizes)
            whole[top : top + height, left : left + width] = photograph.pixels
            corner = np.array([left, top, left, top])
            codes += [
                (each.kind, tuple((each.box + corner).tolist())) for each in photograph.targets
            ]
    return whole, codes


# ---------------------------------------------------------------- memory


def measure_memory(options: argparse.Namespace) -> None:
    if options.peak_of is not None:
        print(_peak(options, options.peak_of))
        return
    counts = (max(options.count // 4, 2), options.count)
    for count in counts:
        command = [sys.executable, *sys.argv, "--peak-of", str(count)]
        peak = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        print(f"{count} pictures of 4000 x 3000: at most {peak / (1 << 20):.0f} MiB", flush=True)


def _peak(options: argparse.Namespace, count: int) -> int:
    """Return the most memory of this process in a run over `count` pictures."""
    import resource

    random = np.random.default_rng(0)
    one = random.integers(0, 256, (_LARGE[1] // 50, _LARGE[0] // 50, 3), np.uint8)
    pictures = (one.repeat(50, axis=0).repeat(50, axis=1) for _ in range(count))
    with load(options, tiles=options.tiles, overlap=options.overlap) as detector:
        for _ in detector.stream(pictures):
            pass
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


if __name__ == "__main__":
    main()
