"""Measure how many codes are read with a detector, and how many zxing-cpp reads by itself.

python tools/codes/read.py --scenes 100               composed pictures of 3 megapixels

Both read the same pixels. A code counts as read if its text is right and the middle of the symbol
lies inside the code. zxing-cpp runs with its defaults on the whole picture.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zxingcpp
from composed import NAMES, ComposedScenes, Written

import engine

Found = tuple[str, tuple[float, float]]  # a text, and the middle of its symbol


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("--seed", type=int, default=71)
    parser.add_argument("--every", type=int, default=100, help="scenes between tables")
    options = parser.parse_args()
    tally = Tally()
    scenes = ComposedScenes(options.seed)
    with engine.load(device="cpu", threads=1, read=True) as detector:
        for number in range(options.first, options.first + options.scenes):
            scene = scenes.scene(number)
            start = time.process_time()
            alone = _alone(scene.pixels)
            tally.alone_seconds += time.process_time() - start
            start = time.process_time()
            detector(scene.pixels, read=False)
            network = time.process_time() - start
            start = time.process_time()
            result = detector(scene.pixels)
            tally.seconds += time.process_time() - start - network
            ours = [(each.text, _middle(each.corners)) for each in result if each.text is not None]
            tally.add(number, scene.codes, ours, alone)
            if not tally.pictures % options.every:
                tally.print()
    if tally.pictures % options.every:
        tally.print()
    with engine.load(device="cpu", threads=1, read=True) as detector:
        result = detector(Path(__file__).parents[2] / "docs/parcel.jpg")
        print(f"docs/parcel.jpg: {sum(each.text is not None for each in result)} of 7")


def _alone(pixels: np.ndarray) -> list[Found]:
    height, width = pixels.shape[:2]
    view = zxingcpp.ImageView(pixels, width, height, zxingcpp.ImageFormat.RGB)
    found = []
    for code in zxingcpp.read_barcodes(view, text_mode=zxingcpp.TextMode.Plain):
        place = code.position
        corners = (place.top_left, place.top_right, place.bottom_right, place.bottom_left)
        found.append((code.text, _middle([(each.x, each.y) for each in corners])))
    return found


def _middle(corners: Sequence[tuple[float, float]]) -> tuple[float, float]:
    x, y = zip(*corners, strict=True)
    return sum(x) / 4, sum(y) / 4


def _contains(corners: Sequence[tuple[float, float]], point: tuple[float, float]) -> bool:
    """Tell whether a point lies in a convex outline, or at most 3 pixels outside."""
    outline = np.array(corners)
    sides = np.roll(outline, -1, axis=0) - outline
    away = np.array(point) - outline
    distances = (sides[:, 0] * away[:, 1] - sides[:, 1] * away[:, 0]) / np.hypot(*sides.T)
    return bool((distances > -3).all() or (distances < 3).all())


class Tally:
    def __init__(self) -> None:
        self.pictures = 0
        self.codes: Counter[int] = Counter()
        self.ours: Counter[int] = Counter()
        self.alone: Counter[int] = Counter()
        self.texts = self.wrong = self.alone_wrong = self.lost = 0
        self.seconds = self.alone_seconds = 0.0

    def add(
        self, number: int, codes: Sequence[Written], ours: list[Found], alone: list[Found]
    ) -> None:
        self.pictures += 1
        self.texts += len(ours)
        for text, middle in ours:
            if not any(text == code.text and _contains(code.corners, middle) for code in codes):
                self.wrong += 1
                print(f"scene {number}: wrong: {text}", file=sys.stderr)
        for code in codes:
            by_us, by_it = (
                any(text == code.text and _contains(code.corners, middle) for text, middle in some)
                for some in (ours, alone)
            )
            self.codes[code.kind] += 1
            self.ours[code.kind] += by_us
            self.alone[code.kind] += by_it
            if by_it and not by_us:
                self.lost += 1
                print(f"scene {number}: lost: {NAMES[code.kind]} {code.text}", file=sys.stderr)
        truth = {code.text for code in codes}
        self.alone_wrong += sum(text not in truth for text, _ in alone)

    def print(self) -> None:
        kinds = range(len(NAMES))
        print(f"\n| {self.pictures} pictures | all | {' | '.join(NAMES)} |")
        print(f"| --- | {' | '.join(['---:'] * (1 + len(NAMES)))} |")
        for name, counts in (
            ("codes", self.codes),
            ("zxing-cpp alone", self.alone),
            ("with the detector", self.ours),
        ):
            print(f"| {name} | {counts.total()} | {' | '.join(str(counts[k]) for k in kinds)} |")
        ratio = self.ours.total() / max(1, self.alone.total())
        print(f"\n{ratio:.3f} times as many; {self.lost} that zxing-cpp alone reads are lost")
        print(f"wrong: {self.wrong} of {self.texts} texts; zxing-cpp alone: {self.alone_wrong}")
        ours, alone = (1e3 * each / self.pictures for each in (self.seconds, self.alone_seconds))
        print(f"{ours:.1f} ms a picture next to the network; zxing-cpp alone {alone:.1f} ms")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
