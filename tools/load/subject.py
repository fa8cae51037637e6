"""What a server under load is asked: pictures of which each has an answer of its own."""

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
FOUND = 5  # boxes in a picture, with random weights, before suppression, on average


@dataclass(frozen=True)
class Subject:
    """What is served."""

    name: str
    options: tuple[str, ...]
    path: str
    bodies: list[bytes]
    expected: list[Any]


def pictures(size: tuple[int, int]) -> Iterator[bytes]:
    """Encoded, all different: two pictures of the documentation, turned, mirrored and cut."""
    parts = product((1.0, 0.85, 0.7, 0.55), range(4), (False, True), ("parcel.jpg", "scene.jpg"))
    for share, turns, is_mirrored, name in parts:
        image = Image.open(DOCS / name).convert("RGB").rotate(90 * turns, expand=True)
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_mirrored else image
        image = image.crop((0, 0, int(image.width * share), int(image.height * share)))
        buffer = io.BytesIO()
        image.resize(size).save(buffer, "JPEG", quality=90)
        yield buffer.getvalue()


def subject_of(chosen: argparse.Namespace, folder: Path) -> Subject:
    """With what the detector finds alone."""
    files = chosen.cfg, chosen.weights, chosen.names
    threshold = 0.25
    if chosen.cfg is None:
        model = default_model()
        assert model is not None
        files = tuple(model)
    elif chosen.random:
        path = random_model.save(chosen.cfg, folder)
        with engine.load(chosen.cfg, path, device="cpu") as detector:
            seen = islice(pictures(chosen.size), 4)
            threshold = random_model.threshold(detector, seen, FOUND)
        files = chosen.cfg, path, chosen.names
    options = ["--threshold", str(threshold)]
    for name, file in zip(("cfg", "weights", "names"), files, strict=True):
        options += [f"--{name}", str(file)] if file else []
    chosen_bodies: dict[str, tuple[bytes, Any]] = {}
    options_of_run = {"device": chosen.device, "precision": chosen.precision}
    with engine.load(*files, threshold=threshold, **options_of_run) as detector:
        for body in pictures(chosen.size):
            entry = detector(body).to_dict()
            answer = entry.get("detections", entry.get("classes"))
            if answer and len(chosen_bodies) < PICTURES:
                chosen_bodies.setdefault(json.dumps(answer), (body, entry))
        address = "/classify" if detector.task == "classifier" else "/detect"
    print(f"{files[0]}: {len(chosen_bodies)} pictures, each with another answer", flush=True)
    bodies, expected = zip(*chosen_bodies.values(), strict=True)
    return Subject(Path(files[0]).stem, tuple(options), address, list(bodies), list(expected))
