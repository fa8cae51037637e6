"""`detector map`: average precision over the `valid` pictures."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from engine.cli import FAILED
from engine.cli._darknet import files, network
from engine.cli._darknet.files import Files
from engine.cli._darknet.labels import labels_of, warn_of_labels_of_others
from engine.cli._stderr import print_stderr
from engine.errors import ImageError, InputError
from engine.files.naming import escaped

if TYPE_CHECKING:
    from engine.arrays import Array
    from engine.evaluate.examples import Example
    from engine.evaluate.score import Report

_THRESHOLD = 0.005  # darknet's threshold for the curve
_HIERARCHY = 0.0
_AT_ONCE = 4  # pictures that darknet reads at a time; it counts them on stderr
_PROGRESS = 100  # detections
_HELP = """
Set -points flag:
 `-points 101` for MS COCO 
 `-points 11` for PascalVOC 2007 (uncomment `difficult` in voc.data) 
 `-points 0` (AUC) for ImageNet, PascalVOC 2010-2012, your custom dataset"""  # noqa: W291


def run(arguments: argparse.Namespace, model: Files, *, options: dict[str, str]) -> int:
    """Print darknet's lines; return the exit status. `options` are those of the .data file."""
    from engine.evaluate.score import Rules, score
    from engine.vision.rows import suppress_rows

    rules = Rules(
        "darknet",
        match_iou=0.5 if arguments.iou_thresh is None else arguments.iou_thresh,
        threshold=0.25 if arguments.thresh is None else arguments.thresh,
        points=arguments.points or 0,
    )
    paths = files.listed(model.data, "valid")
    difficult = files.listed(model.data, "difficult") if "difficult" in options else []
    if difficult and len(difficult) != len(paths):
        raise InputError(
            f"difficult: expected {len(paths)} pictures as in valid, got {len(difficult)}"
        )
    warn_of_labels_of_others(paths)
    examples: list[Example] = []
    failures, started = 0, time.time()
    with network.load(arguments, model) as detector:
        names = detector.labels
        print(*network.heading(detector, model), sep="\n")
        print("\n calculation mAP (mean average precision)...")
        print(*network.detection_layers(detector), sep="\n", flush=True)
        suppression = network.suppression(detector, arguments.nms)
        inputs = network.read_all(detector, paths)
        for number, ((path, taken), hard) in enumerate(zip_longest(inputs, difficult)):
            if number % _AT_ONCE == 0:
                print_stderr(f"\r{number + _AT_ONCE}", end="")
            if isinstance(taken, ImageError):
                print_stderr(f"\nError: {taken}")
                failures += 1
                continue
            found = network.candidates(detector, taken, threshold=_THRESHOLD, hierarchy=_HIERARCHY)
            if found.error:
                print_stderr(f"\nError: {found.error}")
                failures += 1
            rows = suppress_rows(found.rows, suppression)
            examples.append(_example(path, rows, hard, classes=len(names)))
    report = score(examples, names, rules)
    print(*_lines(report, sum(len(each.detections) for each in examples)), sep="\n")
    print_stderr(f"Total Detection Time: {int(time.time() - started)} Seconds")
    print(_HELP)
    return FAILED if failures else 0


def _example(path: str, rows: Array, difficult: str | None, *, classes: int) -> Example:
    """Return an example of size 1 x 1, since all boxes are relative to the picture."""
    import numpy as np

    from engine.evaluate.examples import Detections, Example, Objects
    from engine.vision.rows import boxes_of

    truth = labels_of(path, classes)
    optional = labels_of(difficult, classes) if difficult else []
    boxes = [(x - w / 2, y - h / 2, w, h) for _, (x, y, w, h) in (*truth, *optional)]
    class_ids = [class_id for class_id, _ in (*truth, *optional)]
    flags = [False] * len(truth) + [True] * len(optional)
    found = boxes_of(rows)
    edges = found.xywh.astype(np.float64)
    edges[:, :2] -= edges[:, 2:] / 2
    detections = Detections(edges, found.scores.astype(np.float64), found.class_ids)
    objects = Objects.of(boxes, class_ids, optional=flags)
    return Example(path, (1, 1), objects, detections, path)


def _lines(report: Report, detections: int) -> Iterator[str]:
    counts = report.counts
    yield f"\n detections_count = {detections}, unique_truth_count = {counts.objects}  "
    ranks = range(0, detections, _PROGRESS)
    progress = "".join(f" rank = {rank} of ranks = {detections} \r" for rank in ranks)
    for class_id, each in enumerate(report.classes):
        found = f"(TP = {each.counts.true_positives}, FP = {each.counts.false_positives}) "
        percent = f"ap = {(each.average_precision or 0) * 100:2.2f}%   \t {found}"
        yield f"{progress}class_id = {class_id}, name = {escaped(each.name)}, {percent}"
        progress = ""
    yield from closing_lines(report)


def closing_lines(report: Report) -> Iterator[str]:
    """Yield the counts at the threshold and the mean, in darknet's words."""
    counts, rules = report.counts, report.rules
    shown, hits, misses = f"{rules.threshold:.2f}", counts.true_positives, counts.false_positives
    precision, recall = _share(hits, hits + misses), _share(hits, counts.objects)
    both = precision + recall
    f1 = 2 * precision * recall / both if both else math.nan
    shares = f"precision = {_two(precision)}, recall = {_two(recall)}, F1-score = {_two(f1)} "
    yield f"\n for conf_thresh = {shown}, {shares}"
    sums = f"TP = {hits}, FP = {misses}, FN = {counts.false_negatives}"
    yield f" for conf_thresh = {shown}, {sums}, average IoU = {counts.average_iou * 100:2.2f} % "
    curve = "used Area-Under-Curve for each unique Recall "
    curve = f"used {rules.points} Recall-points " if rules.points else curve
    yield f"\n IoU threshold = {rules.match_iou * 100:2.0f} %, {curve}"
    (mean,) = report.summary.values()
    value = mean or 0.0
    name = f"mAP@{rules.match_iou:.2f}"
    yield f" mean average precision ({name}) = {value:f}, or {value * 100:2.2f} % "


def _share(part: int, whole: int) -> float:
    """Return a quotient in float32 as darknet computes it: 26 / 80 is printed as 0.32."""
    import numpy as np

    return float(np.float32(part) / np.float32(whole)) if whole else math.nan


def _two(value: float) -> str:
    return "-nan" if math.isnan(value) else f"{value:1.2f}"  # C's form of 0 / 0
