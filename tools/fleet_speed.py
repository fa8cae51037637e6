"""Measure how the throughput of detect --ray scales with the number of workers.

    python tools/fleet_speed.py                                   # 1 and 2 actors of one CPU thread
    python tools/fleet_speed.py --device cuda --actors 1,2 --threads 12 --workers 12 --batch 8 \\
        --cfg cfg/yolov4.cfg --random-weights --pictures 3000 --shard 100     # 1 and 2 GPUs

The pictures are hard links to a few files. Each round runs every number of actors once, one after
the other, on one Ray cluster. The rate is measured from when each actor has finished its first
shard, so that start-up does not count; the median of the rounds is printed. `ours` is the number of
processors that the run used, including those of decoding threads, which no worker has reserved.
With --pin each worker is pinned to as many processors as its --threads. `others` is the share of
the machine that other programs used; if it is large, the figures mean little.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engine
from engine import bundled
from engine.darknet import cfg, graph
from engine.darknet.names import default_names
from engine.fleet.detection_run import DetectionRun, WorkerResources, ray_session
from engine.fleet.listing import list_entries
from engine.fleet.packed_model import PackedModel
from tools import random_model

BOXES = 20  # in a picture before NMS, on average, with random weights
_FILES = 64  # different pictures
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _options()
    with TemporaryDirectory(prefix="fleet-speed-") as folder:
        pictures = Path(folder, "pictures")
        start = time.perf_counter()
        write_pictures(pictures, options.pictures, options.picture_size)
        _print_elapsed(f"{options.pictures} pictures are ready", start)
        model = pack_model(options, Path(folder))
        rates: dict[int, list[float]] = {count: [] for count in options.actors}
        start = time.perf_counter()
        with ray_session(model_bytes=model.size):
            _print_elapsed("Ray is up", start)
            for number in range(options.rounds):
                for count in options.actors:
                    out = str(Path(folder, f"out-{number}-{count}"))
                    run = DetectionRun.open(
                        out, list_entries([str(pictures)]), {}, size=options.shard
                    )
                    rate, ours, others = measure(run, model, options, count)
                    rates[count].append(rate)
                    print(f"round {number + 1}: {count} actors {rate:9.2f} images/s", end="  ")
                    print(f"ours {ours:5.2f}  others {others:4.0%}", flush=True)
    print(f"\n{'actors':>6} {'images/s':>9} {'by one':>7}")
    one = median(rates[min(rates)]) / min(rates)
    for count, values in rates.items():
        print(f"{count:6} {median(values):9.2f} {median(values) / one:7.2f}")


def measure(
    run: DetectionRun, model: PackedModel, options: argparse.Namespace, count: int
) -> tuple[float, float, float]:
    """Return images per second, processors used, and the share of the machine that others used."""
    resources = WorkerResources(options.device, options.threads, count, count)
    finished = 0
    start = before = (0.0, 0.0, 0.0)
    shards = run.process(range(run.shards), model, resources, workers=options.workers)
    for number, result in enumerate(shards, start=1):
        if number == count:
            if options.pin:
                pin(options.threads)
            start = before = _times()
        elif number > count:
            finished += result.pictures
            before = _times()
    wall, busy, ours = (now - then for now, then in zip(before, start, strict=True))
    processors = os.cpu_count() or 1
    return finished / wall, ours / wall, max(0.0, busy - ours) / (wall * processors)


def pin(width: int) -> None:
    """Pin each worker to its own processors; threads that it starts later inherit them."""
    free = sorted(os.sched_getaffinity(0))
    for each in _process_tree(os.getpid()):
        if "ShardWorker" not in Path(f"/proc/{each.pid}/cmdline").read_text():
            continue
        own, free = free[:width], free[width:]
        for task in Path(f"/proc/{each.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), own)


def pack_model(options: argparse.Namespace, folder: Path) -> PackedModel:
    model = bundled.default_model()
    assert model is not None
    cfg_path, weights = Path(options.cfg or model.cfg), options.weights or model.weights
    running = {"batch": options.batch, "precision": options.precision}
    if options.random_weights:
        weights = random_model.save(cfg_path, folder)
        with engine.load(cfg_path, weights, device="cpu") as detector:
            sample = sorted((folder / "pictures").iterdir())[:4]
            running["threshold"] = random_model.threshold(detector, sample, BOXES)
    labels = default_names(graph.build(cfg.read(cfg_path)).classes)
    return PackedModel.pack(cfg_path, weights, labels, max_detections=100, **running)


def write_pictures(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Write JPEGs of coarse noise, which decode about as slowly as photographs, and hard links."""
    folder.mkdir()
    random = np.random.default_rng(0)
    paths = [folder / f"{number:06}.jpg" for number in range(count)]
    for path in paths[:_FILES]:
        noise = random.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize(size).save(path, quality=90)
    for number, path in enumerate(paths[_FILES:]):
        path.hardlink_to(paths[number % _FILES])


def _print_elapsed(what: str, start: float) -> None:
    print(f"{what} after {time.perf_counter() - start:.1f} s", flush=True)


def _times() -> tuple[float, float, float]:
    """Return seconds: wall clock, busy time of all processors, CPU time of this process tree."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    total = sum(map(int, fields[:8]))
    ours = sum(each.ticks for each in _process_tree(os.getpid()))
    return time.perf_counter(), (total - idle) / _TICKS, ours / _TICKS


class _Process(NamedTuple):
    pid: int
    parent: int
    ticks: int  # of CPU time, with those of children that have ended

    @classmethod
    def read(cls, path: Path) -> _Process:
        fields = path.read_text().rpartition(")")[2].split()
        return cls(int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15])))


def _process_tree(pid: int) -> Iterator[_Process]:
    """Yield a process and all its descendants."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            processes.append(_Process.read(path))
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        yield from (each for each in processes if each.pid == parent)
        waiting += [each.pid for each in processes if each.parent == parent]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--actors", type=_numbers, default=[1, 2], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--pictures", type=int, default=320, metavar="N")
    parser.add_argument("--picture-size", type=_numbers, default=[640, 480], metavar="W,H")
    parser.add_argument("--shard", type=int, default=8, metavar="N")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--pin", action="store_true", help="pin workers to processors")
    parser.add_argument("--threads", type=int, default=1, help="processors per actor (1)")
    parser.add_argument("--workers", type=int, default=1, help="decoding threads (1)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--cfg", help="instead of the bundled model")
    parser.add_argument("--weights")
    parser.add_argument("--random-weights", action="store_true", help="for a .cfg without weights")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
