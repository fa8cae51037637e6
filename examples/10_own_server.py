"""Batch requests that arrive one by one: read pictures where they arrive, run them together."""

from pathlib import Path

import engine
from engine.inputs import Batch

with engine.load(batch=4) as detector:
    requests = [
        Path("docs/parcel.jpg").read_bytes(),
        b"no picture",
        Path("docs/scene.jpg").read_bytes(),
    ]
    prepared: list[Batch] = []
    for number, content in enumerate(requests):
        try:
            prepared.append(detector.prepare(content, max_pixels=10_000_000))
        except engine.ImageError as error:
            print(f"request {number}: {error}")
    for result in detector.run(Batch.joined(prepared)):
        print(result.to_json())
