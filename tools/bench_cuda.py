"""Time forward passes on a CUDA device, by turns with those of a peer.

    python -m tools.bench_cuda NET.cfg[@SIZE] ... --batches 1,8,64
        --precisions float32,float16,int8 --peer tools/torch_peer.py
        --json tools/results/CARD.json

Weights are random, since speed does not depend on them. Milliseconds are medians of CUDA events
around graph replays, without copies to or from the host: `engine_ms` from floats in the host's
layout to outputs in the same layout, `boxes_ms` from bytes to the boxes above a threshold that
leaves about 20 boxes a picture, as in a street scene. Engine and peer run in turn, a quarter of
their repeats at a time, so that both meet the same clock and temperature of the card. `bound_ms` is
the sum of the ops' lower bounds on this card: each computes and moves every byte once, both at the
peak rate.

--json writes the document that `python -m tools.write_benchmarks` turns into docs/benchmarks.md.
Several runs may fill one document: their rows are added, or replace the rows of the same network,
precision and batch. Kind of card, driver, commit and --repeats must be the same for all. --resume
skips the rows that the document has with the times of all requested peers. All rows come from one
card. On another card of the same kind, or if nvidia-smi does not name the card, --resume is needed:
it times all rows again, and first copies the earlier file to NAME.earlier-1.json.

--ahead N lets N processes of the peer compile first what takes it minutes. TORCHINDUCTOR_CACHE_DIR
keeps that, and ENGINE_CACHE what the engine compiles and tunes, for an interrupted run.

The peer is a program that reads JSON lines and answers each with one line; torch_peer.py describes
them.
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
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.backends import open_device
from engine.backends.base import Placed
from engine.backends.cuda.driver import pycuda_loader
from engine.benchmark.roofline import HasPeaks, lower_bound
from engine.calibrate.collect import ranges_of_noise
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import EngineError
from engine.files.atomic import write_new
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


ROUNDS = 4  # turns of engine and peer
LONGEST_MS = 1500.0  # of one program in one row, which limits the repeats of slow networks

Timer = Callable[[int], list[float]]  # repeats -> milliseconds of each


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    cases = list(product(arguments.nets, arguments.precisions, arguments.batches))
    options: dict[str, Any] = {"waits": True}  # tuned before they run
    if arguments.algorithm:
        options["algorithm"] = arguments.algorithm
    device = open_device(arguments.device)
    document = Document.open(arguments, words, device.describe(), bus_of(device.name))
    if arguments.resume:
        cases = [
            (spec, precision, batch)
            for spec, precision, batch in cases
            if not document.has(
                key_of(spec, precision, batch), variants_of(arguments, spec, precision).values()
            )
        ]
    if arguments.ahead:
        compile_ahead(arguments, cases)
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(arguments)) if arguments.peer else None
        if peer:
            document.content["peer"] = peer.ask({"about": True})["peer"]
        for spec, precision, batch in cases:
            written = plan_of(spec)
            start = time.perf_counter()
            if precision == "int8":
                plan = optimise(written, FUSING)
                ranges = quantise.where_it_gains(plan, ranges_of_noise(written))
                plan = quantise.quantise(plan, ranges)
            else:
                plan = optimise(written, device.passes)
            program = device.compile(plan, batch=batch, precision=precision, **options)
            images = random_images(plan, batch)
            program.forward(images)
            ready = time.perf_counter() - start
            timers = peer.timers(spec, batch, precision) if peer else {}
            with program.repeating(images) as engine:
                ms = measure_in_turn({"": engine, **timers}, arguments.repeats)
            boxes_ms = measure_to_boxes(program, batch, arguments.repeats) if plan.heads else None
            peaks = device.peaks(precision) if isinstance(device, HasPeaks) else None
            run = program.plan
            bounds = [lower_bound(op, batch, peaks, run.scales) for op in run.ops] if peaks else []
            program.close()
            network, *_ = key_of(spec, precision, batch)
            row = {
                "network": network,
                "precision": precision,
                "batch": batch,
                "engine_ms": round(ms.pop(""), 4),
                "boxes_ms": boxes_ms and round(boxes_ms, 4),
                "peers_ms": {name: round(each, 4) for name, each in ms.items()},
                "bound_ms": round(sum(each.milliseconds for each in bounds), 6) or None,
                "ready_s": round(ready, 1),
            }
            document.add(row)
            print(format_row(row), flush=True)
    device.close()
    return 0


def plan_of(spec: str) -> Plan:
    """Return the plan of NET.cfg or NET.cfg@SIZE."""
    name, _, size = spec.partition("@")
    return random_plan(Path(name), int(size) if size else None)


def key_of(spec: str, precision: str, batch: int) -> tuple[str, str, int]:
    """Return the network, precision and batch in the row of a case."""
    name, _, size = spec.partition("@")
    return f"{Path(name).stem}@{size or plan_of(spec).source.shape.width}", precision, batch


def variants_of(arguments: argparse.Namespace, spec: str, precision: str) -> dict[str, str]:
    """Return the peer's variants that are timed with a network, and their names in the tables."""
    has_compiled = Path(spec.partition("@")[0]).stem in arguments.compile
    return {
        variant: name
        for variant, name in PEER_OF[precision].items()
        if arguments.peer and (has_compiled or name != COMPILE)
    }


def measure_in_turn(timers: dict[str, Timer], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each program; they run in turn, some repeats at a time."""
    turns = {}
    for name, timer in timers.items():
        longest = statistics.median(timer(3))
        turns[name] = max(1, min(repeats, int(LONGEST_MS / longest)) // ROUNDS)
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            times[name] += timer(turns[name])
    return {name: statistics.median(each) for name, each in times.items()}


class Peer:
    """A process of the peer, which answers each JSON line with one line."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        command = [sys.executable, str(arguments.peer), "--device", arguments.device]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # then there is no answer, either
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise EngineError(f"the peer ended with status {self._process.wait()}")
        return json.loads(answer)

    def prepare(self, spec: str, batch: int, precision: str) -> dict[str, str]:
        """Let the peer build its variants of this precision in place of those before."""
        variants = variants_of(self._arguments, spec, precision)
        self.ask({"net": spec, "batch": batch, "variants": list(variants)})
        return variants

    def timers(self, spec: str, batch: int, precision: str) -> dict[str, Timer]:
        """Return functions that time the peer's variants, by their names in the tables."""

        def timer(variant: str) -> Timer:
            return lambda repeats: self.ask({"time": variant, "repeats": repeats})["ms"]

        prepared = self.prepare(spec, batch, precision)
        return {name: timer(variant) for variant, name in prepared.items()}

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # from a question that a dead peer has not read
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def compile_ahead(arguments: argparse.Namespace, cases: list[tuple[str, str, int]]) -> None:
    """Let several processes of the peer compile what takes minutes, into a cache on disk."""
    waiting = [
        (spec, batch, precision)
        for spec, precision, batch in cases
        if COMPILE in variants_of(arguments, spec, precision).values()
    ]

    def prepare(case: tuple[str, int, str]) -> None:
        start = time.perf_counter()
        with Peer(arguments) as peer:
            peer.prepare(*case)
        seconds = time.perf_counter() - start
        print(f"compiled {case[0]} b={case[1]} in {seconds:.0f} s", flush=True)

    with ThreadPoolExecutor(arguments.ahead) as pool:
        list(pool.map(prepare, waiting))


class Document:
    """The rows of one commit on one card; the file is rewritten after each row."""

    IDENTITY = ("card", "driver", "commit")
    FIELDS = ("network", "precision", "batch")  # which name a row

    def __init__(
        self, path: Path | None, content: dict[str, Any], *, is_of_another_card: bool
    ) -> None:
        self._path = path
        self._is_of_another_card = is_of_another_card  # the file that is there
        self.content = content

    @classmethod
    def open(
        cls, arguments: argparse.Namespace, words: list[str] | None, card: str, bus: str
    ) -> Document:
        """Begin or go on with the document of --json; `bus` is the card's PCI address."""
        model, _, cuda = card.partition(", driver for CUDA ")
        variables = (
            [f"ENGINE_TUNE={os.environ['ENGINE_TUNE']}"] if "ENGINE_TUNE" in os.environ else []
        )
        options = sys.argv[1:] if words is None else words
        command = [*variables, *("python", "-m", "tools.bench_cuda"), *map(shlex.quote, options)]
        content: dict[str, Any] = {
            "card": model,
            "driver": told_by_driver("driver_version", bus),
            "uuid": told_by_driver("uuid", bus),
            "cuda": cuda,
            "commit": arguments.commit or first_line("git", "describe", "--always", "--dirty"),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "peer": "",
            "repeats": arguments.repeats,
            "commands": [],
            "rows": [],
        }
        is_same_card = True
        if arguments.json and arguments.json.exists():
            earlier = cls._read(arguments.json)
            is_same_card = bool(content["uuid"]) and earlier.get("uuid") == content["uuid"]
            for key in (*cls.IDENTITY, *(["repeats"] if is_same_card else [])):
                if earlier[key] != content[key]:
                    raise EngineError(
                        f"{arguments.json}: {key}: expected {content[key]}, got {earlier[key]}. "
                        "Name another file"
                    )
            if is_same_card:
                content = {**content, **earlier}
            elif not arguments.resume:
                raise EngineError(
                    f"{arguments.json}: has rows of another card than this one, "
                    f"{content['uuid'] or 'which nvidia-smi does not name'}. Name another file, or "
                    "add --resume to time them again and to keep a copy of the file"
                )
        content["commands"] = [*content["commands"], " ".join(command)]
        return cls(arguments.json, content, is_of_another_card=not is_same_card)

    @classmethod
    def _read(cls, path: Path) -> dict[str, Any]:
        with suppress(OSError, ValueError, AttributeError, TypeError):  # not JSON, or no objects
            content = json.loads(path.read_bytes())
            has_all = content.keys() >= {*cls.IDENTITY, "repeats", "commands", "rows"}
            if has_all and all(row.keys() >= {*cls.FIELDS, "peers_ms"} for row in content["rows"]):
                return content
        raise EngineError(f"{path}: expected the rows of an earlier run. Name another file")

    def has(self, key: tuple[object, ...], peers: Collection[str] = ()) -> bool:
        """Return whether a row of this key has the times of these peers."""
        return any(
            self.key(row) == key and row["peers_ms"].keys() >= set(peers)
            for row in self.content["rows"]
        )

    @classmethod
    def key(cls, row: dict[str, Any]) -> tuple[object, ...]:
        return tuple(row[field] for field in cls.FIELDS)

    def add(self, row: dict[str, Any]) -> None:
        rows = [each for each in self.content["rows"] if self.key(each) != self.key(row)]
        self.content["rows"] = [*rows, row]
        if self._path:  # after each row, so that an aborted run keeps its rows
            if self._is_of_another_card:
                write_new(free_name(self._path), self._path.read_bytes())
                self._is_of_another_card = False
            write_new(self._path, serialize(self.content).encode(), overwrite=True)


def free_name(path: Path) -> Path:
    """Return a new name for the copy of a file."""
    names = (path.with_suffix(f".earlier-{number}{path.suffix}") for number in count(1))
    return next(each for each in names if not each.exists())


def serialize(content: dict[str, Any]) -> str:
    """Return a document as JSON with one row per line."""
    rows = [f"  {json.dumps(row)}" for row in content["rows"]]
    head = json.dumps({**content, "rows": []}, indent=1)
    return head.replace('"rows": []', '"rows": [\n' + ",\n".join(rows) + "\n ]") + "\n"


def bus_of(device: str) -> str:
    """Return the PCI address of cuda:N: nvidia-smi numbers cards in another order than CUDA."""
    index = int(device.removeprefix("cuda:"))
    return str(pycuda_loader.load().Device(index).pci_bus_id())


def told_by_driver(query: str, bus: str) -> str:
    return first_line("nvidia-smi", "-i", bus, f"--query-gpu={query}", "--format=csv,noheader")


def first_line(*command: str) -> str:
    """Return the first line of a program's output, or "" if it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def words_of(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 64])
    parser.add_argument("--precisions", type=words_of, default=["float32"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--algorithm")
    parser.add_argument("--peer", type=Path)
    parser.add_argument(
        "--compile", type=words_of, default=[], help="networks that the peer compiles, without .cfg"
    )
    parser.add_argument("--ahead", type=int, default=0, help="processes that compile them first")
    parser.add_argument("--json", type=Path, help="new, or of the same commit and card")
    parser.add_argument("--resume", action="store_true", help="keep the rows that this card has")
    parser.add_argument("--commit", help="the measured commit (default: from git)")
    return parser.parse_args(words)


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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
