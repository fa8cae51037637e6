"""Detections of a trained network on labelled photographs, which are next to the checkout."""

from functools import cache
from pathlib import Path

import pytest

import engine
from engine.evaluate.examples import Detections, Example
from engine.outputs import labelled_pictures
from tests import needs

SHARED = Path(__file__).parents[2].parent / "shared"


def real_examples():
    if not SHARED.is_dir():
        pytest.skip(needs.no_shared("models", "images"))
    return _detected()


@cache
def _detected():
    model = SHARED / "models" / "yolo-fastest-1.1-coco" / "yolo-fastest-1.1-coco"
    files = [model.with_suffix(model.suffix + end) for end in (".cfg", ".weights", ".names")]
    with engine.load(*files, device="cpu", threshold=0.005) as detector:
        truth = labelled_pictures.read(str(SHARED / "images" / "coco_val32"), detector.labels)
        results = list(detector.stream(entry.path for entry in truth.entries))
    assert not truth.problems
    examples = [
        Example(e.image_id, r.size, e.objects(r.size), Detections.from_result(r), e.path)
        for e, r in zip(truth.entries, results, strict=True)
    ]
    return examples, truth.names
