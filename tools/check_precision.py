"""Compare a device's fast precisions with its own float32, on trained and on golden networks.

    python tools/check_precision.py [--shared ../shared] [--device cuda:0]
        [--precisions float16,tf32,int8] [--suite models|golden|all] [--only TEXT] [--draws N]
        [--pictures FOLDER] [--json rows.json]

Trained networks (SHARED/models, and yolov3-tiny in the folder ENGINE_YOLOV3_TINY) run on the
pictures of SHARED/images/coco_val32, or of --pictures FOLDER, which has a file of names; golden
networks (SHARED/golden/open) run on the input of their case. A precision passes if

    outputs      differ by at most 2e-3, relative to their L2 norm
    detections   of either run that are 0.01 above the threshold are matched in the other run: by a
                 box of the same class with an IoU of 0.98. If boxes suppress each other and their
                 scores differ by less than 2e-3, either of them may be kept
    AP           of networks with COCO's classes differs by at most 0.003; in int8 by 0.005, where
                 outputs and detections are listed and not judged

In int8 trained networks have their .scales file, or are calibrated on their pictures as by `engine
calibrate`, golden networks on their input. --draws N measures AP on N copies of the pictures with
noise of a quarter of a grey level, which changes the order of nearly equal scores: the mean losses
of AP, AP50 and AP75 are listed with their standard errors, and the first is judged.

A golden network that the device rejects because of its range is listed and passes, since its
weights are random. If the device computes a golden network in float32 anyway, with other
algorithms, its boxes are not compared: YOLOv1 squares the box sizes, and random weights give boxes
of nearly no size. The exit status is 1 if something does not pass.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import scales
from engine.backends import open_device
from engine.backends.base import Device
from engine.calibrate.choose import Measurement, choose
from engine.calibrate.collect import count_magnitudes
from engine.darknet import cfg, graph, weights
from engine.darknet.graph import Graph
from engine.darknet.lower import lower
from engine.darknet.names import read_names
from engine.errors import EngineError
from engine.evaluate.examples import Detections, Example
from engine.evaluate.ground_truth import GroundTruth
from engine.evaluate.iou import iou_ltwh
from engine.evaluate.score import score
from engine.inputs import Intake, Prepared
from engine.outputs import labelled_pictures
from engine.passes import FUSING, optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan.build import Plan
from engine.vision.boxes import Boxes, Suppression
from engine.vision.postprocess import postprocess_batch
from engine.vision.resize import Placement

Array = NDArray[Any]
Scores = tuple[float, ...]  # by SCORES

MAX_ERROR = 2e-3
MARGIN = 0.01  # boxes closer to the threshold may be found by one run only
MIN_IOU = 0.98  # of a match
NMS_IOU, NO_NMS = 0.45, 1.01
MAX_AP_DIFFERENCE = 0.003
MAX_AP_DIFFERENCE_INT8 = 0.005
INT8_TARGET = 0.1  # the default of `engine calibrate`
MEASURED = 8  # its pictures on which errors are measured
NOISE = 0.25 / 255
SCORES = ("AP", "AP50", "AP75")
MIN_AP_SCORE = 0.005  # of detections that count for AP
THRESHOLD = 0.25
BATCH = 8


@dataclass(frozen=True, eq=False)
class Case:
    """A network and its input; `calls` run in order, since a recurrent network keeps its state."""

    name: str
    suite: str
    network: Graph
    plan: Plan
    calls: tuple[Array, ...]
    placements: tuple[Placement, ...]  # of all rows of all calls
    threshold: float = THRESHOLD
    truth: GroundTruth | None = None
    ranges: LayerRanges | None = None  # of its .scales file


@dataclass(frozen=True, eq=False)
class CaseResult:
    """The results of a case; the lists have an entry for each row."""

    outputs: tuple[Array, ...]
    kept: list[Boxes]
    without_nms: list[Boxes]
    for_ap: list[list[Boxes]]  # down to MIN_AP_SCORE, for each draw; empty without ground truth
    precision: str  # the actual one


@dataclass(frozen=True)
class Row:
    """A line of the table; None if a value does not apply to the network."""

    suite: str
    net: str
    precision: str
    error: float | None = None
    boxes: int | None = None  # above the margin, in both runs together
    lost: int | None = None  # those of them without a match
    overlap: float | None = None  # the smallest IoU of the matches
    ap: float | None = None
    ap_float32: float | None = None
    draws: tuple[tuple[Scores, Scores], ...] = ()  # with noise, and those of float32
    in_float32: bool = False
    refused: str = ""

    @property
    def passes(self) -> bool:
        if self.refused:
            return self.suite == "golden"
        is_int8 = self.precision == "int8"
        most = MAX_AP_DIFFERENCE_INT8 if is_int8 else MAX_AP_DIFFERENCE
        has_same_ap = self.ap is None or abs(self.loss) <= most
        if is_int8:
            is_finite = self.error is not None and math.isfinite(self.error)
            return has_same_ap and (is_finite or self.suite == "golden")
        has_same_boxes = not self.lost or (self.in_float32 and self.suite == "golden")
        return self.error is not None and self.error <= MAX_ERROR and has_same_boxes and has_same_ap

    def __str__(self) -> str:
        head = f"{self.suite:7s} {self.net:32s} {self.precision:8s}"
        if self.refused:
            return f"{head} refused: {self.refused}"
        values = [
            f"error {self.error:.1e}",
            "" if self.boxes is None else f"boxes {self.boxes:4d}, lost {self.lost}",
            "" if self.overlap is None else f"overlap {self.overlap:.4f}",
            "" if self.ap is None else f"AP {self.ap:.4f} for {self.ap_float32:.4f}",
        ]
        for name, (mean, error) in zip(SCORES, self.mean_losses(), strict=False):
            values[-1] += f", {name} mean loss {mean:+.4f} +- {error:.4f}"
        columns = (f"{text:{width}s}" for text, width in zip(values, (13, 20, 14, 20), strict=True))
        note = "FAIL" if not self.passes else "in float32" if self.in_float32 else ""
        return f"{head} {'  '.join(columns)} {note}".rstrip()

    @property
    def loss(self) -> float:
        """How much less AP is than in float32: the mean over the draws, if there are any."""
        return self.mean_losses()[0][0] if self.draws else (self.ap_float32 or 0) - (self.ap or 0)

    def mean_losses(self) -> list[tuple[float, float]]:
        """Return the mean and the standard error of the losses of each score over the draws."""
        if not self.draws:
            return []
        losses = np.array([np.subtract(float32, own) for own, float32 in self.draws])
        errors = losses.std(axis=0, ddof=len(losses) > 1) / math.sqrt(len(losses))
        return list(zip(losses.mean(axis=0).tolist(), errors.tolist(), strict=True))


# ---------------------------------------------------------------- comparison


def check(device: Device, case: Case, precisions: Sequence[str], draws: int = 0) -> Iterator[Row]:
    """Yield a row for each precision."""
    plan = optimise(case.plan, device.passes)
    expected = run(device, case, plan, "float32", draws)
    for precision in precisions:
        head = case.suite, case.name, precision
        try:
            ready = int8_plan(device, case) if precision == "int8" else plan
            if precision == "int8" and not ready.scales:
                continue  # nothing of it can be int8
            got = run(device, case, ready, precision, draws)
        except EngineError as error:
            yield Row(*head, refused=str(error))
            continue
        errors = map(relative_error, got.outputs, expected.outputs)
        yield Row(
            *head,
            max(errors),
            *compare_boxes(case, got, expected),
            *average_precisions(got, expected, case),
            draws_of(got, expected, case),
            in_float32=precision != got.precision == "float32",
        )


def int8_plan(device: Device, case: Case) -> Plan:
    """Return the plan in int8, calibrated on the input of the case if it has no ranges."""
    if case.ranges is not None:
        return quantise(optimise(case.plan, FUSING), case.ranges)
    steps = case.plan.steps
    rows = [images[n : n + steps] for images in case.calls for n in range(0, len(images), steps)]
    histograms = count_magnitudes(case.plan, device, rows)
    if case.suite == "models":
        measurement = Measurement(case.plan, device, rows[:MEASURED])
        ranges = choose(measurement, histograms, INT8_TARGET).ranges
    else:
        ranges = LayerRanges({n: each.limit("max") for n, each in enumerate(histograms)})
    return quantise(optimise(case.plan, FUSING), ranges)


def run(device: Device, case: Case, plan: Plan, precision: str, draws: int = 0) -> CaseResult:
    batch = max(map(len, case.calls)) // plan.steps
    program = device.compile(plan, batch=batch, precision=precision)
    try:
        results = [program.forward(images) for images in case.calls]
        outputs = tuple(np.concatenate(calls) for calls in zip(*results, strict=True))
        kept: list[Boxes] = []
        without_nms: list[Boxes] = []
        for_ap: list[list[Boxes]] = []
        if plan.heads:
            kept = detect(program, case, case.threshold)
            without_nms = detect(program, case, case.threshold, NO_NMS)
            if case.truth:
                cases = [case, *(noisy(case, seed) for seed in range(draws))]
                for_ap = [detect(program, each, MIN_AP_SCORE) for each in cases]
        actual = getattr(program, "precision", precision)
        return CaseResult(outputs, kept, without_nms, for_ap, actual)
    finally:
        program.close()


def noisy(case: Case, seed: int) -> Case:
    random = np.random.default_rng(seed)
    calls = (x + NOISE * random.standard_normal(x.shape, np.float32) for x in case.calls)
    return replace(case, calls=tuple(calls))


def detect(program: Any, case: Case, threshold: float, nms: float = NMS_IOU) -> list[Boxes]:
    program.reset()
    rows = [row for images in case.calls for row in program.detect(images, threshold=threshold)]
    suppression = Suppression(nms, *case.network.nms)  # type: ignore[arg-type]
    return postprocess_batch(rows, case.placements, suppression)


def relative_error(got: Array, expected: Array) -> float:
    """Return the relative L2 error; infinite if NaNs or infinities are not in the same places."""
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    is_finite = np.isfinite(expected)
    if not np.array_equal(is_finite, np.isfinite(got)):
        return math.inf
    size = float(np.linalg.norm(expected[is_finite]))
    difference = float(np.linalg.norm(got[is_finite] - expected[is_finite]))
    return difference / size if size else difference


def compare_boxes(
    case: Case, got: CaseResult, expected: CaseResult
) -> tuple[int | None, int | None, float | None]:
    """Return the number of boxes, of those without a match, and the smallest IoU of a match."""
    if not case.plan.heads:
        return None, None, None
    overlaps = np.concatenate(
        [
            best_overlaps(mine.kept[row], mine.without_nms[row], other.kept[row], case.threshold)
            for row in range(len(got.kept))
            for mine, other in ((got, expected), (expected, got))
        ]
    )
    is_matched = overlaps >= MIN_IOU
    smallest = float(overlaps[is_matched].min()) if is_matched.any() else None
    return len(overlaps), int(np.count_nonzero(~is_matched)), smallest


def best_overlaps(mine: Boxes, without_nms: Boxes, other: Boxes, threshold: float) -> Array:
    """Return the largest IoU of each of `mine` above the margin with the boxes of the other run.

    A box that `mine` suppressed counts in its place if their scores are nearly the same, because
    then it is chance which one is kept.
    """
    mine = mine.take(mine.scores > threshold + MARGIN)
    is_tied = np.abs(mine.scores[:, None] - without_nms.scores) < MAX_ERROR
    is_tied &= iou(mine, without_nms) > NMS_IOU
    best = iou(without_nms, other).max(axis=1, initial=0)
    overlaps: Array = np.where(is_tied, best, 0).max(axis=1, initial=0)
    return overlaps


def iou(first: Boxes, second: Boxes) -> Array:
    """Return the IoU of each pair of boxes; 0 if their classes differ."""
    overlaps = iou_ltwh(to_ltwh(first), to_ltwh(second))
    overlaps[first.class_ids[:, None] != second.class_ids] = 0
    return overlaps


def to_ltwh(boxes: Boxes, size: tuple[int, int] = (1, 1)) -> Array:
    """Return rows of left, top, width and height in a picture of this size."""
    rows = boxes.xywh.astype(np.float64) * np.tile(np.asarray(size, np.float64), 2)
    rows[:, :2] -= rows[:, 2:] / 2
    return rows


def average_precisions(
    got: CaseResult, expected: CaseResult, case: Case
) -> tuple[float | None, float | None]:
    if case.truth is None:
        return None, None
    return scores_of(got.for_ap[0], case)[0], scores_of(expected.for_ap[0], case)[0]


def draws_of(
    got: CaseResult, expected: CaseResult, case: Case
) -> tuple[tuple[Scores, Scores], ...]:
    pairs = zip(got.for_ap[1:], expected.for_ap[1:], strict=True)
    return tuple((scores_of(mine, case), scores_of(other, case)) for mine, other in pairs)


def scores_of(found: Sequence[Boxes], case: Case) -> Scores:
    truth, examples = case.truth, []
    assert truth is not None
    for entry, boxes, placement in zip(truth.entries, found, case.placements, strict=True):
        size = placement.picture
        scores = boxes.scores.astype(np.float64)
        detections = Detections(to_ltwh(boxes, size), scores, boxes.class_ids)
        examples.append(Example(entry.image_id, size, entry.objects(size), detections))
    summary = score(examples, truth.names).summary
    return tuple(summary[name] or 0.0 for name in SCORES)


# ---------------------------------------------------------------- cases


def trained_cases(shared: Path, only: str, pictures: Path | None = None) -> Iterator[Case]:
    stems = [folder / folder.name for folder in sorted((shared / "models").glob("*"))]
    tiny = os.environ.get("ENGINE_YOLOV3_TINY")
    if tiny:
        stems.append(Path(tiny) / "yolov3-tiny")
    for stem in stems:
        if only in stem.name:
            yield trained_case(stem, pictures or shared / "images" / "coco_val32")


def trained_case(stem: Path, pictures: Path) -> Case:
    files = Path(f"{stem}.cfg"), Path(f"{stem}.weights")
    network = graph.build(cfg.read(files[0]))
    plan = lower(network, weights.load(files[1], network))
    (path,) = pictures.glob("*.names")
    names = read_names(path, len(path.read_text(encoding="utf-8").splitlines()))
    truth = labelled_pictures.read(str(pictures), names)
    fit = "crop" if network.task == "classifier" else "stretch"
    intake = Intake(network.net.shape, "letterbox" if network.letter_box else fit)  # type: ignore[arg-type]
    batch = intake.prepare([entry.path for entry in truth.entries], bgr=False)
    images = np.stack([each.row for each in batch.placed])  # type: ignore[misc]
    prepared = [each for each in batch.pictures if isinstance(each, Prepared)]
    assert len(prepared) == len(truth.entries), "a picture that cannot be read"
    is_labelled = network.task == "detector" and network.classes == len(names)
    has_scales = scales.path_beside(files[1]).is_file()
    kinds = [node.kind for node in network.nodes]
    return Case(
        *(stem.name, "models", network, plan),
        tuple(np.split(images, range(BATCH, len(images), BATCH))),
        tuple(each.placement for each in prepared),
        truth=truth if is_labelled else None,
        ranges=scales.load(None, *files, kinds).ranges if has_scales else None,
    )


def golden_cases(shared: Path, only: str) -> Iterator[Case]:
    checker = import_file(shared / "golden" / "check.py")
    for folder, case in checker.find_cases(str(shared / "golden" / "open"), "all"):
        if only in case["name"]:
            with tempfile.TemporaryDirectory() as temporary:
                loaded = golden_case(checker, Path(folder), case, temporary)
            yield loaded


def golden_case(checker: ModuleType, folder: Path, case: dict[str, Any], temporary: str) -> Case:
    network = graph.build(cfg.read(folder / "net.cfg"), time_steps=case["time_steps"])
    file = checker.weights_for(str(folder), case, temporary)
    calls = checker.inputs_for(case)
    images = calls.reshape(*calls.shape[:2], *network.net.shape.sides)
    side = network.net.width, network.net.height
    threshold = THRESHOLD
    if case["boxes"]:
        threshold = json.loads((folder / "boxes.json").read_text())[0]["thresh"]
    return Case(
        *(case["name"], "golden", network, lower(network, weights.load(Path(file), network))),
        tuple(images),
        (Placement(side, side),) * (len(images) * images.shape[1]),
        threshold,
    )


def import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(words: Sequence[str] | None = None) -> int:
    shared = Path(__file__).resolve().parents[2] / "shared"
    os.environ.setdefault("ENGINE_TUNE", "10")  # networks are tuned before they run
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=shared)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precisions", default="float16,tf32,int8")
    parser.add_argument("--suite", choices=("models", "golden", "all"), default="all")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--pictures", type=Path, help="labelled ones, for trained networks")
    parser.add_argument("--draws", type=int, default=0, help="of noise, for AP")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    device = open_device(arguments.device)
    print(f"{device.name}: {device.describe()}", flush=True)
    rows: list[Row] = []
    trained = partial(trained_cases, pictures=arguments.pictures)
    for suite, cases in (("models", trained), ("golden", golden_cases)):
        if arguments.suite not in (suite, "all"):
            continue
        for case in cases(arguments.shared, arguments.only):
            for row in check(device, case, arguments.precisions.split(","), arguments.draws):
                rows.append(row)
                print(row, flush=True)
                if arguments.json:  # after each row, so that an aborted run keeps its rows
                    lines = [{**vars(each), "passes": each.passes} for each in rows]
                    arguments.json.write_text(json.dumps(lines, indent=1))
    device.close()
    failed = sum(not row.passes for row in rows)
    print(f"{len(rows)} rows, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
