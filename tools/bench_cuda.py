"""Time forward passes on a CUDA device, and those of a peer in the same run.

    python -m tools.bench_cuda NET.cfg[@SIZE] ... --batches 1,8,64 --precisions float32,float16
        --peer tools/torch_peer.py --peer-arguments "..." --json tools/results/CARD.json

Weights are random, since speed does not depend on them. Milliseconds are medians of CUDA events
around graph replays, without copies to or from the host: `engine_ms` from floats in the host's
layout to outputs in the same layout, `boxes_ms` from bytes to the boxes above a threshold that
leaves about 20 boxes a picture, as in a street scene.

--json writes the document that `python -m tools.write_benchmarks` turns into docs/benchmarks.md.
Several runs may fill one document: their rows are added, or replace the rows of the same network,
precision and batch. Card, driver and commit must be the same for all of them.

The peer program takes the same nets and batches, `--only VARIANTS` and `--out FILE`, and writes
{"peer": its name and version, "rows": [{net, batch, variant, ms}, ...]}.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.backends import open_device
from engine.backends.base import Placed
from engine.calibrate.collect import ranges_of_noise
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import EngineError
from engine.passes import FUSING, optimise, quantise
from engine.plan.build import Plan
from engine.vision.resize import Placement
from tools import random_model

ROOT = Path(__file__).resolve().parent.parent
BOXES = 20  # in a picture, before NMS
GRAPH, COMPILE = "PyTorch", "torch.compile"  # a replayed CUDA graph; mode="max-autotune"
# The peer's variants of each precision, and their names in the tables.
PEER_OF = {
    "float32": {"fp32": GRAPH},
    "tf32": {"tf32": GRAPH},
    "float16": {"fp16": GRAPH, "fp16-compile": COMPILE},
    "int8": {},
}


def random_plan(path: Path, size: int | None) -> Plan:
    """Return the plan of a network with random weights that keep activations near 1."""
    network = graph.build(cfg.read(path), size=(size, size) if size else None)
    return lower(network, random_weights.arrays(network))


def random_images(plan: Plan, batch: int) -> NDArray[np.float32]:
    images = np.zeros((batch, *plan.source.shape.sides), np.float32)
    images[:] = np.random.default_rng(1).random(images.shape[1:], np.float32)
    return images


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    batches = [int(batch) for batch in arguments.batches.split(",")]
    precisions = arguments.precisions.split(",")
    options: dict[str, Any] = {"waits": True}  # tuned before they run
    if arguments.algorithm:
        options["algorithm"] = arguments.algorithm
    device = open_device(arguments.device)
    document = Document.open(arguments, words, device.describe())
    for spec in arguments.nets:
        name, _, size = spec.partition("@")
        written = random_plan(Path(name), int(size) if size else None)
        network = f"{Path(name).stem}@{written.source.shape.width}"
        peers = peer_rows(arguments, spec, precisions, document) if arguments.peer else []
        for precision, batch in product(precisions, batches):
            start = time.perf_counter()
            if precision == "int8":
                ranges = ranges_of_noise(written)
                plan = quantise.quantise(optimise(written, FUSING), ranges)
            else:
                plan = optimise(written, device.passes)
            program = device.compile(plan, batch=batch, precision=precision, **options)
            ms, ready = measure_forward(program, batch, arguments.repeats, start)
            boxes_ms = measure_to_boxes(program, batch, arguments.repeats) if plan.heads else None
            program.close()
            row = {
                "network": network,
                "precision": precision,
                "batch": batch,
                "engine_ms": round(ms, 4),
                "boxes_ms": boxes_ms and round(boxes_ms, 4),
                "peers_ms": peer_times(peers, batch, precision),
                "ready_s": round(ready, 1),
            }
            document.add(row)
            print(format_row(row), flush=True)
    device.close()
    return 0


class Document:
    """The rows of one commit on one card; the file is rewritten after each row."""

    IDENTITY = ("card", "driver", "commit")

    def __init__(self, path: Path | None, content: dict[str, Any]) -> None:
        self._path = path
        self.content = content

    @classmethod
    def open(cls, arguments: argparse.Namespace, words: list[str] | None, card: str) -> Document:
        model, _, cuda = card.partition(", driver for CUDA ")
        variables = (
            [f"ENGINE_TUNE={os.environ['ENGINE_TUNE']}"] if "ENGINE_TUNE" in os.environ else []
        )
        options = sys.argv[1:] if words is None else words
        command = [*variables, *("python", "-m", "tools.bench_cuda"), *map(shlex.quote, options)]
        content: dict[str, Any] = {
            "card": model,
            "driver": first_line(
                "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
            ),
            "cuda": cuda,
            "commit": arguments.commit or first_line("git", "describe", "--always", "--dirty"),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "peer": "",
            "repeats": arguments.repeats,
            "commands": [],
            "rows": [],
        }
        if arguments.json and arguments.json.exists():
            earlier = json.loads(arguments.json.read_text(encoding="utf-8"))
            for key in cls.IDENTITY:
                if earlier[key] != content[key]:
                    raise EngineError(
                        f"{arguments.json}: {key}: expected {content[key]}, got {earlier[key]}. "
                        "Name another file"
                    )
            content = {**content, **earlier}
        content["commands"] = [*content["commands"], " ".join(command)]
        return cls(arguments.json, content)

    def add(self, row: dict[str, Any]) -> None:
        def key(each: dict[str, Any]) -> tuple[Any, ...]:
            return each["network"], each["precision"], each["batch"]

        rows = [each for each in self.content["rows"] if key(each) != key(row)]
        self.content["rows"] = [*rows, row]
        if self._path:  # after each row, so that an aborted run keeps its rows
            self._path.write_text(serialize(self.content), encoding="utf-8")


def serialize(content: dict[str, Any]) -> str:
    """Return a document as JSON with one row per line."""
    rows = [f"  {json.dumps(row)}" for row in content["rows"]]
    head = json.dumps({**content, "rows": []}, indent=1)
    return head.replace('"rows": []', '"rows": [\n' + ",\n".join(rows) + "\n ]") + "\n"


def first_line(*command: str) -> str:
    """Return the first line of a program's output, or "" if it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--precisions", default="float32")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--algorithm")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--peer-arguments", default="")
    parser.add_argument("--json", type=Path, help="new, or of the same commit and card")
    parser.add_argument("--commit", help="the measured commit (default: from git)")
    return parser.parse_args(words)


def measure_forward(program: Any, batch: int, repeats: int, start: float) -> tuple[float, float]:
    """Return milliseconds of a run, and seconds from `start` to the end of the first one."""
    images = random_images(program.plan, batch)
    program.forward(images)
    ready = time.perf_counter() - start
    return statistics.median(program.measure(images, repeats=repeats)), ready


def measure_to_boxes(program: Any, batch: int, repeats: int) -> float:
    """Return milliseconds from pictures in the network's size to decoded boxes."""
    channels, height, width = program.plan.source.shape.sides
    noise = np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)
    picture = Placed(noise, Placement((width, height), (width, height)))
    (rows,) = program.start_detect([picture], threshold=0.0).result()
    threshold = random_model.threshold_for(rows, BOXES)
    return statistics.median(
        program.measure([picture] * batch, repeats=repeats, threshold=threshold)
    )


def peer_times(peers: list[Any], batch: int, precision: str) -> dict[str, float]:
    """Return the milliseconds of the peer's variants of this precision, by name in the tables."""
    names = PEER_OF[precision]
    return {
        names[row["variant"]]: round(row["ms"], 4)
        for row in peers
        if row["batch"] == batch and row["variant"] in names
    }


def format_row(row: dict[str, Any]) -> str:
    ms = row["engine_ms"]
    boxes = f"to boxes {row['boxes_ms']:8.3f} ms  " if row["boxes_ms"] else ""
    peers = "".join(
        f"{name} {peer_ms:8.3f} ms: {peer_ms / ms:.2f}x  "
        for name, peer_ms in row["peers_ms"].items()
    )
    return (
        f"{row['network']:26s} b={row['batch']:<3d} {row['precision']:8s} {ms:8.3f} ms"
        f"  {row['batch'] * 1e3 / ms:9.0f}/s  {boxes}{peers}(ready {row['ready_s']:.1f} s)"
    )


def peer_rows(
    arguments: argparse.Namespace, spec: str, precisions: list[str], document: Document
) -> list[Any]:
    variants = [variant for precision in precisions for variant in PEER_OF[precision]]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        subprocess.run(
            [
                *(sys.executable, str(arguments.peer), spec, "--batches", arguments.batches),
                *("--only", ",".join(variants), "--out", str(out)),
                *arguments.peer_arguments.split(),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        written = json.loads(out.read_text())
        document.content["peer"] = written["peer"]
        rows: list[Any] = written["rows"]
        return rows


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
