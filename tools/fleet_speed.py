"""Images a second through detect --ray's workers, by how many there are, and how they scale.

    python tools/fleet_speed.py                                   # 1 and 2 actors of one CPU thread
    python tools/fleet_speed.py --device cuda --actors 1,2 --threads 12 --workers 12 --batch 8 \\
        --cfg cfg/yolov4.cfg --random-weights --pictures 8000     # 1 and 2 GPUs

Pictures are made first. Each round runs every number of actors once, one after the other, on one
Ray; a run's rate is that of what is finished after each actor has finished its first shard, so that
starting and loading do not count. Of several rounds the median is told. `others` is how much of
this machine's processors was used by programs that are not part of the run: of a busy machine the
figures say little.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import shipped
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.names import default_names
from engine.fleet.listing import entries
from engine.fleet.packed import PackedModel
from engine.fleet.run import Run, Share, connected

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _options()
    with TemporaryDirectory(prefix="fleet-speed-") as folder:
        pictures = Path(folder, "pictures")
        write_pictures(pictures, options.pictures, options.picture_size)
        model = packed(options, Path(folder))
        rates: dict[int, list[float]] = {count: [] for count in options.actors}
        with connected(model_bytes=model.size):
            for number in range(options.rounds):
                for count in options.actors:
                    out = str(Path(folder, f"out-{number}-{count}"))
                    run = Run.begin(out, entries([str(pictures)]), {}, size=options.shard)
                    rate, others = measured(run, model, options, count)
                    rates[count].append(rate)
                    print(f"round {number + 1}: {count} actors {rate:9.2f} images/s", end="  ")
                    print(f"others {others:4.0%}", flush=True)
    print(f"\n{'actors':>6} {'images/s':>9} {'by one':>7}")
    one = median(rates[min(rates)]) / min(rates)
    for count, values in rates.items():
        print(f"{count:6} {median(values):9.2f} {median(values) / one:7.2f}")


def measured(
    run: Run, model: PackedModel, options: argparse.Namespace, count: int
) -> tuple[float, float]:
    """Images a second, and the share of the machine that others used meanwhile."""
    share = Share(options.device, options.threads, count, count)
    finished = 0
    start = before = (0.0, 0.0, 0.0)
    shards = run.work(range(run.shards), model, share, workers=options.workers)
    for number, done in enumerate(shards, start=1):
        if number == count:
            start = before = _times()
        elif number > count:
            finished += done.seen
            before = _times()
    wall, busy, ours = (now - then for now, then in zip(before, start, strict=True))
    processors = os.cpu_count() or 1
    return finished / wall, max(0.0, busy - ours) / (wall * processors)


def packed(options: argparse.Namespace, folder: Path) -> PackedModel:
    model = shipped.default_model()
    assert model is not None
    chosen, trained = options.cfg or model.cfg, options.weights or model.weights
    network = graph.build(cfg.read(chosen))
    if options.random_weights:
        trained = folder / "random.weights"
        weights.save(trained, network, random_weights.arrays(network))
    labels = default_names(network.classes)
    running = {"batch": options.batch, "precision": options.precision}
    return PackedModel.of(chosen, trained, labels, max_detections=100, **running)


def write_pictures(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Coarse noise, which decodes about as slowly as photographs."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        noise = random.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize(size).save(folder / f"{number:06}.jpg", quality=90)


def _times() -> tuple[float, float, float]:
    """Seconds: of the wall, of all processors at work, of this process and those below it."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    total = sum(map(int, fields[:8]))
    ours = sum(_processor_ticks(_below(os.getpid())))
    return time.perf_counter(), (total - idle) / _TICKS, ours / _TICKS


def _below(pid: int) -> Iterator[list[str]]:
    """The fields of /proc/PID/stat behind the name, of a process and all that it has started."""
    known: dict[str, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            known[path.parent.name] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
    waiting = [str(pid)]
    while waiting:
        parent = waiting.pop()
        if parent in known:
            yield known[parent]
        waiting += [each for each, fields in known.items() if fields[1] == parent]


def _processor_ticks(processes: Iterator[list[str]]) -> Iterator[int]:
    """With those of children that have ended."""
    return (sum(map(int, fields[11:15])) for fields in processes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--actors", type=_numbers, default=[1, 2], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--pictures", type=int, default=320, metavar="N")
    parser.add_argument("--picture-size", type=_numbers, default=[640, 480], metavar="W,H")
    parser.add_argument("--shard", type=int, default=8, metavar="N")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
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
