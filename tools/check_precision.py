"""Checks a device's fast precisions against its own float32, on trained and on golden networks.

    python tools/check_precision.py [--shared ../shared] [--device cuda:0]
        [--precisions float16,tf32] [--suite models|golden|all] [--only TEXT] [--json rows.json]

Trained networks, those of SHARED/models and the yolov3-tiny in the folder that ENGINE_YOLOV3_TINY
names, see the pictures of SHARED/images/coco_val32; golden ones, SHARED/golden/open, see the input
of their case. A precision passes where

    each output      differs by at most 2e-3 of its size, root mean square
    each detection   0.01 above the threshold, of either run, is one of the other run, too: a box
                     of the same class with an overlap of 0.98; of boxes that suppress each other
                     and whose scores differ by less than 2e-3 either may be the one that stays
    AP               of networks of COCO's classes differs by at most 0.003

A golden network that the device refuses for its range is listed and counts as passed: its weights
are random. Of one that the device computes in float32 all the same, by algorithms that another
tuning chose, the outputs count and boxes do not: YOLOv1 squares what it says, and with random
weights there are boxes of next to no size. Exit status 1 says that something missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.backends import open_device
from engine.backends.base import Device
from engine.darknet import cfg, graph, weights
from engine.darknet.graph import Graph
from engine.darknet.lower import lower
from engine.darknet.names import read_names
from engine.errors import EngineError
from engine.evaluate import dataset
from engine.evaluate.examples import Detections, Example
from engine.evaluate.ground_truth import GroundTruth
from engine.evaluate.iou import iou_ltwh
from engine.evaluate.score import score
from engine.inputs import Intake, Prepared
from engine.passes import optimise
from engine.plan.build import Plan
from engine.vision.boxes import Boxes, Suppression
from engine.vision.postprocess import postprocess_batch
from engine.vision.resize import Placement

Array = NDArray[Any]

MOST_ERROR = 2e-3
MARGIN = 0.01  # above the threshold: what is nearer may be found by one run alone
LEAST_OVERLAP = 0.98
SUPPRESSED, NONE_SUPPRESSED = 0.45, 1.01  # overlaps from which on one box removes another
MOST_AP = 0.003
LEAST_SCORE = 0.005  # that is ranked for AP
THRESHOLD = 0.25
BATCH = 8
COCO_CLASSES = 80


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and what it is shown: `calls` in order, since a state outlives a run."""

    name: str
    suite: str
    network: Graph
    plan: Plan
    calls: tuple[Array, ...]
    placements: tuple[Placement, ...]  # of every row of every call
    threshold: float = THRESHOLD
    truth: GroundTruth | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """What a program makes of a subject; each list has an entry for each row."""

    outputs: tuple[Array, ...]
    found: list[Boxes]
    rivals: list[Boxes]  # the same and those that they suppressed
    ranked: list[Boxes]  # down to LEAST_SCORE, where there is something to compare them with
    precision: str  # that it is computed in


@dataclass(frozen=True)
class Row:
    """A line of the table; None where a network has nothing of the kind."""

    suite: str
    net: str
    precision: str
    error: float | None = None
    boxes: int | None = None  # that count, in both runs together
    lost: int | None = None  # of them without a partner
    overlap: float | None = None  # the least of the others with their partners
    ap: float | None = None
    ap_float32: float | None = None
    in_float32: bool = False
    refused: str = ""

    @property
    def passes(self) -> bool:
        if self.refused:
            return self.suite == "golden"
        is_near = self.ap is None or abs(self.ap - (self.ap_float32 or 0)) <= MOST_AP
        is_found = not self.lost or (self.in_float32 and self.suite == "golden")
        return self.error is not None and self.error <= MOST_ERROR and is_found and is_near

    def __str__(self) -> str:
        head = f"{self.suite:7s} {self.net:32s} {self.precision:8s}"
        if self.refused:
            return f"{head} refused: {self.refused}"
        shown = [
            f"error {self.error:.1e}",
            "" if self.boxes is None else f"boxes {self.boxes:4d}, lost {self.lost}",
            "" if self.overlap is None else f"overlap {self.overlap:.4f}",
            "" if self.ap is None else f"AP {self.ap:.4f} for {self.ap_float32:.4f}",
        ]
        columns = (f"{text:{width}s}" for text, width in zip(shown, (13, 20, 14, 20), strict=True))
        note = "MISS" if not self.passes else "in float32" if self.in_float32 else ""
        return f"{head} {'  '.join(columns)} {note}".rstrip()


# ---------------------------------------------------------------- one subject


def check(device: Device, subject: Subject, precisions: Sequence[str]) -> Iterator[Row]:
    """A row for each precision, as soon as it is known."""
    plan = optimise(subject.plan, device.passes)
    expected = answer(device, subject, plan, "float32")
    for precision in precisions:
        head = subject.suite, subject.name, precision
        try:
            got = answer(device, subject, plan, precision)
        except EngineError as error:
            yield Row(*head, refused=str(error))
            continue
        errors = map(relative_error, got.outputs, expected.outputs)
        yield Row(
            *head,
            max(errors),
            *compared_boxes(subject, got, expected),
            *aps(got, expected, subject),
            in_float32=precision != got.precision == "float32",
        )


def answer(device: Device, subject: Subject, plan: Plan, precision: str) -> Answer:
    batch = max(map(len, subject.calls)) // plan.steps
    program = device.compile(plan, batch=batch, precision=precision)
    try:
        results = [program.forward(images) for images in subject.calls]
        outputs = tuple(np.concatenate(of_one) for of_one in zip(*results, strict=True))
        found: list[Boxes] = []
        rivals: list[Boxes] = []
        ranked: list[Boxes] = []
        if plan.heads:
            found = detect(program, subject, subject.threshold)
            rivals = detect(program, subject, subject.threshold, NONE_SUPPRESSED)
            ranked = detect(program, subject, LEAST_SCORE) if subject.truth else []
        computed = getattr(program, "precision", precision)
        return Answer(outputs, found, rivals, ranked, computed)
    finally:
        program.close()


def detect(
    program: Any, subject: Subject, threshold: float, overlap: float = SUPPRESSED
) -> list[Boxes]:
    program.reset()
    rows = [row for images in subject.calls for row in program.detect(images, threshold=threshold)]
    suppression = Suppression(overlap, *subject.network.nms)  # type: ignore[arg-type]
    return postprocess_batch(rows, subject.placements, suppression)


def relative_error(got: Array, expected: Array) -> float:
    """Infinite where one of them has a number and the other none."""
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    is_number = np.isfinite(expected)
    if not np.array_equal(is_number, np.isfinite(got)):
        return math.inf
    size = float(np.linalg.norm(expected[is_number]))
    difference = float(np.linalg.norm(got[is_number] - expected[is_number]))
    return difference / size if size else difference


def compared_boxes(
    subject: Subject, got: Answer, expected: Answer
) -> tuple[int | None, int | None, float | None]:
    """How many count, how many of them have no partner, how well the worst of the others fits."""
    if not subject.plan.heads:
        return None, None, None
    overlaps = np.concatenate(
        [
            best_overlaps(mine.found[row], mine.rivals[row], other.found[row], subject.threshold)
            for row in range(len(got.found))
            for mine, other in ((got, expected), (expected, got))
        ]
    )
    has_partner = overlaps >= LEAST_OVERLAP
    least = float(overlaps[has_partner].min()) if has_partner.any() else None
    return len(overlaps), int(np.count_nonzero(~has_partner)), least


def best_overlaps(mine: Boxes, rivals: Boxes, other: Boxes, threshold: float) -> Array:
    """Of each box that counts, or of a rival that might have stayed in its place, with the others.

    Of two boxes with nearly the same score, which one suppresses the other is chance.
    """
    mine = mine.take(mine.scores > threshold + MARGIN)
    is_tied = np.abs(mine.scores[:, None] - rivals.scores) < MOST_ERROR
    is_tied &= shared(mine, rivals) > SUPPRESSED
    best = shared(rivals, other).max(axis=1, initial=0)
    found: Array = np.where(is_tied, best, 0).max(axis=1, initial=0)
    return found


def shared(some: Boxes, others: Boxes) -> Array:
    """The overlap of each of some boxes with each of the others, of the same class."""
    overlaps = iou_ltwh(corners(some), corners(others))
    overlaps[some.class_ids[:, None] != others.class_ids] = 0
    return overlaps


def corners(found: Boxes, size: tuple[int, int] = (1, 1)) -> Array:
    """left, top, width, height."""
    rows = found.xywh.astype(np.float64) * np.tile(np.asarray(size, np.float64), 2)
    rows[:, :2] -= rows[:, 2:] / 2
    return rows


def aps(got: Answer, expected: Answer, subject: Subject) -> tuple[float | None, float | None]:
    truth = subject.truth
    if truth is None:
        return None, None
    return average_precision(got.ranked, subject, truth), average_precision(
        expected.ranked, subject, truth
    )


def average_precision(ranked: Sequence[Boxes], subject: Subject, truth: GroundTruth) -> float:
    examples = []
    for entry, found, placement in zip(truth.entries, ranked, subject.placements, strict=True):
        size = placement.picture
        there = Detections(corners(found, size), found.scores.astype(np.float64), found.class_ids)
        examples.append(Example(entry.image_id, size, entry.objects(size), there))
    return score(examples, truth.names).summary["AP"] or 0.0


# ---------------------------------------------------------------- subjects


def trained(shared: Path, only: str) -> Iterator[Subject]:
    stems = [folder / folder.name for folder in sorted((shared / "models").glob("*"))]
    tiny = os.environ.get("ENGINE_YOLOV3_TINY")
    if tiny:
        stems.append(Path(tiny) / "yolov3-tiny")
    for stem in stems:
        if only in stem.name:
            yield trained_one(stem, shared / "images" / "coco_val32")


def trained_one(stem: Path, pictures: Path) -> Subject:
    network = graph.build(cfg.read(Path(f"{stem}.cfg")))
    plan = lower(network, weights.load(Path(f"{stem}.weights"), network))
    names = read_names(pictures / "coco.names", COCO_CLASSES)
    truth = dataset.read(str(pictures), names)
    fit = "crop" if network.task == "classifier" else "stretch"
    intake = Intake(network.net.shape, "letterbox" if network.letter_box else fit)  # type: ignore[arg-type]
    batch = intake.prepare([entry.path for entry in truth.entries], bgr=False)
    assert batch.images is not None
    prepared = [each for each in batch.pictures if isinstance(each, Prepared)]
    assert len(prepared) == len(truth.entries), "a picture that cannot be read"
    is_coco = network.task == "detector" and network.classes == COCO_CLASSES
    return Subject(
        *(stem.name, "models", network, plan),
        tuple(np.split(batch.images, range(BATCH, len(batch.images), BATCH))),
        tuple(each.placement for each in prepared),
        truth=truth if is_coco else None,
    )


def golden(shared: Path, only: str) -> Iterator[Subject]:
    judge = module(shared / "golden" / "check.py")
    for folder, case in judge.find_cases(str(shared / "golden" / "open"), "all"):
        if only in case["name"]:
            with tempfile.TemporaryDirectory() as room:
                subject = golden_one(judge, Path(folder), case, room)
            yield subject


def golden_one(judge: ModuleType, folder: Path, case: dict[str, Any], room: str) -> Subject:
    network = graph.build(cfg.read(folder / "net.cfg"), time_steps=case["time_steps"])
    file = judge.weights_for(str(folder), case, room)
    calls = judge.inputs_for(case)
    images = calls.reshape(*calls.shape[:2], *network.net.shape.sides)
    side = network.net.width, network.net.height
    threshold = THRESHOLD
    if case["boxes"]:
        threshold = json.loads((folder / "boxes.json").read_text())[0]["thresh"]
    return Subject(
        *(case["name"], "golden", network, lower(network, weights.load(Path(file), network))),
        tuple(images),
        (Placement(side, side),) * (len(images) * images.shape[1]),
        threshold,
    )


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main(given: Sequence[str] | None = None) -> int:
    beside = Path(__file__).resolve().parents[2] / "shared"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=beside)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precisions", default="float16,tf32")
    parser.add_argument("--suite", choices=("models", "golden", "all"), default="all")
    parser.add_argument("--only", default="", help="networks whose name holds this")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    device = open_device(arguments.device)
    print(f"{device.name}: {device.describe()}", flush=True)
    rows: list[Row] = []
    for suite, subjects in (("models", trained), ("golden", golden)):
        if arguments.suite not in (suite, "all"):
            continue
        for subject in subjects(arguments.shared, arguments.only):
            for row in check(device, subject, arguments.precisions.split(",")):
                rows.append(row)
                print(row, flush=True)
                if arguments.json:  # as it goes, so that a run that is cut short leaves its rows
                    lines = [{**vars(each), "passes": each.passes} for each in rows]
                    arguments.json.write_text(json.dumps(lines, indent=1))
    device.close()
    missed = sum(not row.passes for row in rows)
    print(f"{len(rows)} rows, {missed} missed")
    return 1 if missed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
