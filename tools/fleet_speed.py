"""Images a second through detect --ray's workers, by how many there are, and how they scale.

    python tools/fleet_speed.py                                   # 1 and 2 actors of one CPU thread
    python tools/fleet_speed.py --device cuda --actors 1,2 --threads 12 --workers 12 --batch 8 \\
        --cfg cfg/yolov4.cfg --random-weights --pictures 3000 --shard 100     # 1 and 2 GPUs

Pictures are written first: many names, but few pictures. Each round runs every number of actors
once, one after the other, on one Ray; a run's rate is that of what is finished after each
actor has finished its first shard, so that starting and loading do not count. Of several rounds the
median is told. `ours` is how many processors the run used: a worker's threads that read pictures
take some of what no worker has. With --pin each worker stays on processors of its own, as many as
its --threads. `others` is how much of the machine other programs used: of a busy machine the
figures say little.
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

FOUND = 20  # boxes in a picture, with random weights, before suppression, on average
_DIFFERENT = 64  # pictures
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _options()
    with TemporaryDirectory(prefix="fleet-speed-") as folder:
        pictures = Path(folder, "pictures")
        start = time.perf_counter()
        write_pictures(pictures, options.pictures, options.picture_size)
        _say(f"{options.pictures} pictures are ready", start)
        model = packed(options, Path(folder))
        rates: dict[int, list[float]] = {count: [] for count in options.actors}
        start = time.perf_counter()
        with ray_session(model_bytes=model.size):
            _say("Ray is up", start)
            for number in range(options.rounds):
                for count in options.actors:
                    out = str(Path(folder, f"out-{number}-{count}"))
                    run = DetectionRun.open(
                        out, list_entries([str(pictures)]), {}, size=options.shard
                    )
                    rate, ours, others = measured(run, model, options, count)
                    rates[count].append(rate)
                    print(f"round {number + 1}: {count} actors {rate:9.2f} images/s", end="  ")
                    print(f"ours {ours:5.2f}  others {others:4.0%}", flush=True)
    print(f"\n{'actors':>6} {'images/s':>9} {'by one':>7}")
    one = median(rates[min(rates)]) / min(rates)
    for count, values in rates.items():
        print(f"{count:6} {median(values):9.2f} {median(values) / one:7.2f}")


def measured(
    run: DetectionRun, model: PackedModel, options: argparse.Namespace, count: int
) -> tuple[float, float, float]:
    """Images a second, processors used for them, the share of the machine that others used."""
    resources = WorkerResources(options.device, options.threads, count, count)
    finished = 0
    start = before = (0.0, 0.0, 0.0)
    shards = run.process(range(run.shards), model, resources, workers=options.workers)
    for number, done in enumerate(shards, start=1):
        if number == count:
            if options.pin:
                pin(options.threads)
            start = before = _times()
        elif number > count:
            finished += done.pictures
            before = _times()
    wall, busy, ours = (now - then for now, then in zip(before, start, strict=True))
    processors = os.cpu_count() or 1
    return finished / wall, ours / wall, max(0.0, busy - ours) / (wall * processors)


def pin(width: int) -> None:
    """Give each worker processors of its own; threads that it starts later stay on them, too."""
    free = sorted(os.sched_getaffinity(0))
    for each in _below(os.getpid()):
        if "ShardWorker" not in Path(f"/proc/{each.pid}/cmdline").read_text():
            continue
        mine, free = free[:width], free[width:]
        for task in Path(f"/proc/{each.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), mine)


def packed(options: argparse.Namespace, folder: Path) -> PackedModel:
    model = bundled.default_model()
    assert model is not None
    chosen, trained = Path(options.cfg or model.cfg), options.weights or model.weights
    running = {"batch": options.batch, "precision": options.precision}
    if options.random_weights:
        trained = random_model.save(chosen, folder)
        with engine.load(chosen, trained, device="cpu") as detector:
            seen = sorted((folder / "pictures").iterdir())[:4]
            running["threshold"] = random_model.threshold(detector, seen, FOUND)
    labels = default_names(graph.build(cfg.read(chosen)).classes)
    return PackedModel.pack(chosen, trained, labels, max_detections=100, **running)


def write_pictures(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Coarse noise, which decodes about as slowly as photographs; many names, but few pictures."""
    folder.mkdir()
    random = np.random.default_rng(0)
    paths = [folder / f"{number:06}.jpg" for number in range(count)]
    for path in paths[:_DIFFERENT]:
        noise = random.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize(size).save(path, quality=90)
    for number, path in enumerate(paths[_DIFFERENT:]):
        path.hardlink_to(paths[number % _DIFFERENT])


def _say(what: str, start: float) -> None:
    print(f"{what} after {time.perf_counter() - start:.1f} s", flush=True)


def _times() -> tuple[float, float, float]:
    """Seconds: of the wall, of all processors at work, of this process and those below it."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    total = sum(map(int, fields[:8]))
    ours = sum(each.ticks for each in _below(os.getpid()))
    return time.perf_counter(), (total - idle) / _TICKS, ours / _TICKS


class _Process(NamedTuple):
    pid: int
    parent: int
    ticks: int  # of a processor, with those of children that have ended

    @classmethod
    def read(cls, path: Path) -> _Process:
        fields = path.read_text().rpartition(")")[2].split()
        return cls(int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15])))


def _below(pid: int) -> Iterator[_Process]:
    """A process and all that it has started."""
    known = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            known.append(_Process.read(path))
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        yield from (each for each in known if each.pid == parent)
        waiting += [each.pid for each in known if each.parent == parent]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--actors", type=_numbers, default=[1, 2], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--pictures", type=int, default=320, metavar="N")
    parser.add_argument("--picture-size", type=_numbers, default=[640, 480], metavar="W,H")
    parser.add_argument("--shard", type=int, default=8, metavar="N")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--pin", action="store_true", help="workers to processors of their own")
    parser.add_argument("--threads", type=int, default=1, help="processors of an actor (1)")
    parser.add_argument("--workers", type=int, default=1, help="threads that read pictures (1)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--cfg", help="instead of the model in the box")
    parser.add_argument("--weights")
    parser.add_argument("--random-weights", action="store_true", help="for a .cfg without any")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
