"""val(): COCO's average precision of a detector on labelled pictures."""

from __future__ import annotations

import logging
from pathlib import Path

from engine.compat.ultralytics.boxes import inside
from engine.compat.ultralytics.metrics import Metrics
from engine.detector import Detector
from engine.errors import ImageError, InputError

_log = logging.getLogger("engine")


def evaluate(
    detector: Detector, data: str, *, conf: float, iou: float | None, labels: str | None
) -> Metrics:
    """Return the metrics on a folder, a list, a .json file of COCO, or a .data file."""
    from engine.darknet.graph import named_task
    from engine.darknet.names import find_file
    from engine.evaluate import coco_files
    from engine.evaluate.examples import Detections, Example
    from engine.evaluate.score import Rules, score
    from engine.outputs import labelled_pictures

    if detector.task != "detector":
        raise InputError(
            f"val(): expected a detector, got {named_task(detector.task)}. "
            "Run: engine classify --list FILE"
        )
    if Path(data).suffix.lower() == ".data":
        data = str(find_file(data, "valid"))
    if Path(data).suffix.lower() == ".json":
        truth = coco_files.read_truth(data, detector.labels)
    else:
        truth = labelled_pictures.read(data, detector.labels, labels=labels)
    if truth.has_no_labels:
        raise InputError(f"{data}: no picture has a label file. labels= names their folder")
    examples: list[Example] = []
    broken: list[ImageError] = []
    found = detector.stream(
        (entry.path for entry in truth.entries),
        on_error="yield",
        expand=False,
        threshold=conf,
        nms=iou,
    )
    for entry, result in zip(truth.entries, found, strict=True):
        if isinstance(result, ImageError):
            broken.append(result)
            if result.result is None:
                continue
            result = result.result  # empty: its objects count as missed
        detections = Detections.from_result(inside(result))
        objects = entry.objects(result.size)
        examples.append(Example(entry.image_id, result.size, objects, detections, entry.path))
    for each in (*truth.warnings(), *broken):
        _log.warning("%s", each)
    if broken and not examples:
        raise broken[0]
    if left_out := len(truth.entries) - len(examples):
        of = f"{left_out} of {len(truth.entries)}"
        _log.warning("%s pictures could not be read and are left out", of)
    return Metrics(score(examples, truth.names, Rules("coco")))
