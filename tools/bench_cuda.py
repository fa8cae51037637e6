"""Times forward passes on a CUDA device beside a peer, in one run, and prints ratios.

    python tools/bench_cuda.py NET.cfg[@SIZE] ... --batches 1,8,64 --precisions float32,float16
        --peer PEER.py --peer-arguments "…" --json rows.json

Weights are random: speed does not depend on them. Milliseconds are medians of CUDA events around
graph replays, without copies to or from the host: `ms` from floats in the host's layout to outputs
in the same, `boxes_ms` from bytes to the boxes above a threshold, about as many as in a street.
PEER.py, as torch_peer.py, takes the same nets and batches, `--only VARIANTS` and `--out FILE`, and
writes a list of {net, batch, variant, ms}.
"""

from __future__ import annotations

import argparse
import json
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
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import EngineError
from engine.passes import optimise
from engine.plan.build import Plan
from engine.vision.resize import Placement
from tools import random_model

BOXES = 20  # in a picture, before suppression
PEER_OF = {"float32": ("fp32",), "tf32": ("tf32",), "float16": ("fp16", "fp16-compile")}


def random_plan(path: Path, size: int | None) -> Plan:
    """The network with weights that keep activations near 1."""
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
    options = {"algorithm": arguments.algorithm} if arguments.algorithm else {}
    device = open_device(arguments.device)
    rows: list[dict[str, Any]] = []
    for spec in arguments.nets:
        name, _, size = spec.partition("@")
        plan = optimise(random_plan(Path(name), int(size) if size else None), device.passes)
        about = {"net": Path(name).stem, "size": plan.source.shape.width}
        peers = peer_rows(arguments, spec, precisions) if arguments.peer else []
        for precision, batch in product(precisions, batches):
            start = time.perf_counter()
            program = device.compile(plan, batch=batch, precision=precision, **options)
            ms, ready = measured(program, batch, arguments.repeats, start)
            boxes_ms = measured_to_boxes(program, batch, arguments.repeats) if plan.heads else None
            program.close()
            rows.append(
                {
                    **about,
                    "batch": batch,
                    "precision": precision,
                    "ms": ms,
                    "boxes_ms": boxes_ms,
                    **best_of(peers, batch, precision),
                    "ready_s": ready,
                }
            )
            print(told(rows[-1]), flush=True)
            if arguments.json:  # as it goes, so that a run that is cut short leaves its rows
                arguments.json.write_text(json.dumps(rows, indent=1))
    device.close()
    return 0


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
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def measured(program: Any, batch: int, repeats: int, start: float) -> tuple[float, float]:
    """Milliseconds of a run, and seconds from `start` until the first one was over."""
    images = random_images(program.plan, batch)
    program.forward(images)
    ready = time.perf_counter() - start
    return statistics.median(program.measure(images, repeats=repeats)), ready


def measured_to_boxes(program: Any, batch: int, repeats: int) -> float:
    """Milliseconds of a run that scales pictures, which have the network's size, and decodes."""
    channels, height, width = program.plan.source.shape.sides
    noise = np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)
    picture = Placed(noise, Placement((width, height), (width, height)))
    (rows,) = program.start_detect([picture], threshold=0.0).result()
    threshold = random_model.least(rows, BOXES)
    return statistics.median(
        program.measure([picture] * batch, repeats=repeats, threshold=threshold)
    )


def best_of(peers: list[Any], batch: int, precision: str) -> dict[str, Any]:
    """The peer's ways to compute the same, and the fastest of them."""
    ways = {
        row["variant"]: row["ms"]
        for row in peers
        if row["batch"] == batch and row["variant"] in PEER_OF[precision]
    }
    variant = min(ways, key=lambda way: ways[way], default="")
    return {"peer": variant, "peer_ms": ways.get(variant), "peers_ms": ways}


def told(row: dict[str, Any]) -> str:
    ms, peer_ms = row["ms"], row["peer_ms"]
    ratio = f"{row['peer']} {peer_ms:8.3f} ms  ratio {ms / peer_ms:.2f}" if peer_ms else ""
    boxes = f"to boxes {row['boxes_ms']:8.3f} ms  " if row["boxes_ms"] else ""
    return (
        f"{row['net']:22s} {row['size']:4d} b={row['batch']:<3d} {row['precision']:8s} {ms:8.3f} ms"
        f"  {row['batch'] * 1e3 / ms:9.0f}/s  {boxes}{ratio}  (ready {row['ready_s']:.1f} s)"
    )


def peer_rows(arguments: argparse.Namespace, spec: str, precisions: list[str]) -> list[Any]:
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
        rows: list[Any] = json.loads(out.read_text())
        return rows


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
