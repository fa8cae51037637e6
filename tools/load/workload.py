"""The model and the pictures of a load test; each picture has a different result."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

from PIL import Image

import engine
from engine.bundled import default_model
from tools import random_model

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = 16
BOXES = 5  # in a picture before NMS, on average, with random weights


@dataclass(frozen=True)
class Workload:
    """The options of a server, its requests and the expected results."""

    name: str
    options: tuple[str, ...]
    path: str
    bodies: list[bytes]
    expected: list[Any]


def pictures(size: tuple[int, int]) -> Iterator[bytes]:
    """Yield JPEGs: rotated, mirrored and cropped versions of two pictures of the documentation."""
    parts = product((1.0, 0.85, 0.7, 0.55), range(4), (False, True), ("parcel.jpg", "scene.jpg"))
    for share, turns, is_mirrored, name in parts:
        image = Image.open(DOCS / name).convert("RGB").rotate(90 * turns, expand=True)
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_mirrored else image
        image = image.crop((0, 0, int(image.width * share), int(image.height * share)))
        buffer = io.BytesIO()
        image.resize(size).save(buffer, "JPEG", quality=90)
        yield buffer.getvalue()


def make_workload(options: argparse.Namespace, folder: Path) -> Workload:
    """Return a workload with the results of the detector alone."""
    files = options.cfg, options.weights, options.names
    threshold = 0.25
    if options.cfg is None:
        model = default_model()
        assert model is not None
        files = tuple(model)
    elif options.random:
        weights = random_model.save(options.cfg, folder)
        with engine.load(options.cfg, weights, device="cpu") as detector:
            sample = islice(pictures(options.size), 4)
            threshold = random_model.threshold(detector, sample, BOXES)
        files = options.cfg, weights, options.names
    words = ["--threshold", str(threshold)]
    for name, file in zip(("cfg", "weights", "names"), files, strict=True):
        words += [f"--{name}", str(file)] if file else []
    requests: dict[str, tuple[bytes, Any]] = {}
    running = {"device": options.device, "precision": options.precision}
    with engine.load(*files, threshold=threshold, **running) as detector:
        for body in pictures(options.size):
            entry = detector(body).to_dict()
            found = entry.get("detections", entry.get("classes"))
            if found and len(requests) < PICTURES:
                requests.setdefault(json.dumps(found), (body, entry))
        path = "/classify" if detector.task == "classifier" else "/detect"
    print(f"{files[0]}: {len(requests)} pictures with different results", flush=True)
    bodies, expected = zip(*requests.values(), strict=True)
    return Workload(Path(files[0]).stem, tuple(words), path, list(bodies), list(expected))
