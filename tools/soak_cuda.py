"""Wears a CUDA device out: whether memory stays flat, answers find their askers, two cards are two.

    python tools/soak_cuda.py [PART ...] [--json rows.json] [--quick]

    images    10,000 pictures of many sizes: fitted slopes of device and host memory
    loads     200 loads and closes: the same
    threads   32 threads on one detector, 200 tagged pictures each
    calls     what a batch-1 call costs the host beyond the device's copies and kernels
    pipeline  pictures to boxes, at batch 64 and one by one, beside forward runs alone
    cards     two cards beside one
    start     from import to the first result, with nothing kept and with kept kernels

Every part prints a line for each number, with what it should be. Weights are random. The exit
status is 1 when a number is not what it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engine
from engine.backends.base import Placed
from engine.backends.cuda import driver
from engine.backends.cuda.device import CudaDevice
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.vision.image import Picture
from engine.vision.resize import Placement, stretch

Array = NDArray[Any]

ROOT = Path(__file__).resolve().parent.parent
SMALL, MIDDLE = ROOT / "cfg" / "yolov3-tiny.cfg", ROOT / "cfg" / "yolov4-tiny.cfg"
LARGE = ROOT / "cfg" / "yolov4.cfg"
FOUND = 20  # boxes in a picture, before suppression, on average
SAMPLES = 50
SETTLED = 0.3  # of the samples: what comes before is still warming up


@dataclass(frozen=True)
class Row:
    """One number, and whether it is what it should be."""

    part: str
    what: str
    value: float
    unit: str
    should: str
    is_good: bool


class Soak:
    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.rows: list[Row] = []
        self._thresholds: dict[object, float] = {}

    # ------------------------------------------------------------ parts

    def images(self) -> None:
        total = 2_000 if self.quick else 10_000
        given = pictures(24)
        observer = CudaDevice(0)
        with self.load(SMALL, batch=8) as detector:
            readings = []
            start = time.perf_counter()
            for number, _ in enumerate(detector.stream(islice(cycle(given), total))):
                if number % (total // SAMPLES) == 0:
                    readings.append((number, *memory_in_use(observer)))
            seconds = time.perf_counter() - start
            planned = detector.memory.total
        observer.close()
        self.add_slopes("images", readings, "picture")
        self.add("images", "pictures a second", total / seconds, "1/s")
        self.add("images", "planned", planned / 2**20, "MiB")

    def loads(self) -> None:
        total = 40 if self.quick else 200
        (picture,) = pictures(1)
        observer = CudaDevice(0)  # keeps the context: making one anew takes longer than a load
        readings = []
        times = []
        for number in range(total):
            start = time.perf_counter()
            with self.load(SMALL) as detector:
                detector(picture)
            times.append(time.perf_counter() - start)
            readings.append((number, *memory_in_use(observer)))
        observer.close()
        self.add_slopes("loads", readings, "load")
        self.add("loads", "load, first result, close", median(times) * 1e3, "ms")

    def threads(self) -> None:
        threads, calls = 32, 40 if self.quick else 200
        given = pictures(48)
        with self.load(SMALL) as detector:
            expected = [detector(picture) for picture in given]
            distinct = len({each.boxes.tobytes() for each in expected})
            wrong: list[int] = []

            def ask(seed: int) -> None:
                order = random.Random(seed)
                for _ in range(calls):
                    tag = order.randrange(len(given))
                    if not are_same(detector(given[tag]), expected[tag]):
                        wrong.append(tag)

            start = time.perf_counter()
            run_at_once([(ask, seed) for seed in range(threads)])
            seconds = time.perf_counter() - start
        self.add("threads", "answers of others", len(wrong), "", "0", not wrong)
        self.add("threads", "distinct answers", distinct, "", ">= 40", distinct >= 40)
        self.add("threads", "pictures a second", threads * calls / seconds, "1/s")

    def calls(self) -> None:
        repeats = 100 if self.quick else 400
        for net in (SMALL, MIDDLE):
            for precision in ("float32", "float16"):
                self.add_calls(net, precision, repeats)

    def add_calls(self, net: Path, precision: str, repeats: int) -> None:
        device = CudaDevice(0)
        network = graph.build(cfg.read(net))
        plan = optimise(lower(network, random_weights.arrays(network)), device.passes)
        program = device.compile(plan, precision=precision)
        shape = plan.source.shape
        sides = shape.width, shape.height
        given = pictures(1, sides)
        threshold = self.threshold(net, given)
        images = np.random.default_rng(0).random((1, *shape.sides), np.float32)
        placed = [Placed(given[0], Placement(sides, sides))]
        ways: list[tuple[str, Any, Callable[[], object]]] = [
            ("floats", images, lambda: program.detect(images, threshold=threshold)),
            (
                *("a picture", placed),
                lambda: program.start_detect(placed, threshold=threshold).result(),
            ),
        ]
        for way, asked, call in ways:
            name = f"{net.stem} {precision}, from {way}"
            wall = timed(call, repeats) * 1e3
            times = program.device_times(asked, threshold=threshold, repeats=repeats)
            on_device = median(times) * 1e3
            self.add("calls", f"{name}: the call", wall, "us")
            self.add("calls", f"{name}: copies and kernels", on_device, "us")
            host = wall - on_device
            if way == "floats":  # four times the bytes that a picture has
                self.add("calls", f"{name}: the host beyond", host, "us")
            else:
                self.add(*("calls", f"{name}: the host beyond", host, "us"), *("<= 60", host <= 60))
        program.close()
        device.close()

    def pipeline(self) -> None:
        rounds = 10 if self.quick else 40
        for precision in ("float32", "float16"):
            self.add_stream(MIDDLE, precision, 64, rounds)
        for precision in ("float32", "float16"):
            self.add_single(LARGE, precision, 10 * rounds)

    def add_stream(self, net: Path, precision: str, batch: int, rounds: int) -> None:
        given = pictures(batch, size_of(net))
        with self.load(net, given=given, batch=batch, precision=precision) as detector:
            images = np.zeros((batch, 3, *reversed(detector.size)), np.float32)
            images[:] = np.random.default_rng(0).random(images.shape[1:], np.float32)
            program: Any = detector._program
            forward = batch * 1e3 / median(program.measure(images, repeats=40))
            found = sum(map(len, detector.stream(given * 4))) / len(given) / 4
            start = time.perf_counter()
            for _ in detector.stream(islice(cycle(given), batch * rounds)):
                pass
            boxes = batch * rounds / (time.perf_counter() - start)
        name = f"{net.stem} {precision}, batch {batch}"
        self.add("pipeline", f"{name}: boxes in a picture", found, "")
        self.add("pipeline", f"{name}: forward", forward, "1/s")
        self.add("pipeline", f"{name}: pictures to boxes", boxes, "1/s")
        share = boxes / forward
        self.add("pipeline", f"{name}: share", share, "x", ">= 0.85", share >= 0.85)

    def add_single(self, net: Path, precision: str, repeats: int) -> None:
        given = pictures(1, size_of(net))
        with self.load(net, given=given, precision=precision) as detector:
            images = np.random.default_rng(0).random((1, 3, *reversed(detector.size)), np.float32)
            program: Any = detector._program
            forward = median(program.measure(images, repeats=repeats))
            boxes = timed(lambda: detector(given[0]), repeats)
        name = f"{net.stem}@{images.shape[3]} {precision}"
        self.add("pipeline", f"{name}: forward", forward, "ms")
        self.add("pipeline", f"{name}: picture to boxes", boxes, "ms")
        ratio = boxes / forward
        self.add("pipeline", f"{name}: ratio", ratio, "x", "<= 1.3", ratio <= 1.3)

    def cards(self) -> None:
        if driver.count() < 2:
            self.add("cards", "cards", driver.count(), "", "2 for this part")
            return
        rates = []
        for device in ("cuda:0", "cuda:0,cuda:1"):
            batch = 16 * device.count("cuda")
            given = pictures(batch, (1024, 1024))
            with self.load(MIDDLE, given=given, device=device, batch=batch, size=1024) as detector:
                list(detector.stream(given * 4))
                total = len(given) * (5 if self.quick else 30)
                start = time.perf_counter()
                for _ in detector.stream(islice(cycle(given), total)):
                    pass
                rates.append(total / (time.perf_counter() - start))
                self.add("cards", f"{device}: pictures to boxes", rates[-1], "1/s")
        ratio = rates[1] / rates[0]
        self.add("cards", "two beside one", ratio, "x", ">= 1.9", ratio >= 1.9)

    def start(self) -> None:
        files = self.files(SMALL)
        with tempfile.TemporaryDirectory() as kept:
            for what, most in (("nothing kept", 25.0), ("kept kernels", 1.2)):
                done = subprocess.run(
                    [sys.executable, "-c", FIRST_RESULT, *map(str, files), str(ROOT)],
                    env={**os.environ, "ENGINE_CACHE": kept},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    raise SystemExit(done.stderr)
                seconds = float(done.stdout.split()[-1])
                self.add("start", what, seconds, "s", f"<= {most}", seconds <= most)

    # ------------------------------------------------------------ what they share

    def load(
        self,
        net: Path,
        *,
        given: list[Array] | None = None,
        device: str = "cuda:0",
        **options: Any,
    ) -> engine.Detector:
        threshold = self.threshold(net, given, options.get("size"))
        return engine.load(*self.files(net), device=device, threshold=threshold, **options)

    def threshold(
        self, net: Path, given: list[Array] | None = None, size: int | None = None
    ) -> float:
        """What leaves about as many boxes as a street has, though nobody trained the weights."""
        sides = given[0].shape if given else None
        key = net, size, sides
        if key not in self._thresholds:
            with engine.load(*self.files(net), device="cuda:0", size=size) as detector:
                seen = (given or pictures(6))[:6]
                rows = [stretch(Picture(each), detector.size)[0][None] for each in seen]
                found = [detector.candidates(row, threshold=0.0)[0][:, 5:] for row in rows]
            scores = np.sort(np.concatenate([each.ravel() for each in found]))
            self._thresholds[key] = float(scores[-FOUND * len(rows)])
        return self._thresholds[key]

    def files(self, net: Path) -> tuple[Path, Path]:
        path = self.folder / f"{net.stem}.weights"
        if not path.exists():
            network = graph.build(cfg.read(net))
            weights.save(path, network, random_weights.arrays(network))
        return net, path

    def add(
        self,
        part: str,
        what: str,
        value: float,
        unit: str,
        should: str = "",
        is_good: bool = True,
    ) -> None:
        row = Row(part, what, value, unit, should, is_good)
        self.rows.append(row)
        judged = "" if not should else f"{should:22s} {'ok' if is_good else 'NO'}"
        print(f"{part:9s} {what:52s} {value:12.3f} {unit:9s} {judged}", flush=True)

    def add_slopes(self, part: str, readings: list[tuple[int, int, int]], unit: str) -> None:
        """Fitted, in bytes; what the first readings show is warming up."""
        numbers, device, host = np.array(readings[int(len(readings) * SETTLED) :], float).T
        slopes = [float(np.polyfit(numbers, bytes_in_use, 1)[0]) for bytes_in_use in (device, host)]
        # Of a host, less than two pages for each load and a few bytes for each picture are noise.
        most = 8192 if unit == "load" else 256
        self.add(part, "slope of device memory", slopes[0], f"B/{unit}", "0", abs(slopes[0]) < 1)
        self.add(
            part, "slope of host memory", slopes[1], f"B/{unit}", f"< {most}", slopes[1] < most
        )


FIRST_RESULT = """
import sys, time
start = time.perf_counter()
sys.path.insert(0, sys.argv[3])
import numpy, engine
with engine.load(sys.argv[1], sys.argv[2], device="cuda:0") as detector:
    detector(numpy.zeros((300, 400, 3), numpy.uint8))
    print(time.perf_counter() - start)
"""


def size_of(net: Path) -> tuple[int, int]:
    """Width and height of its input."""
    shape = graph.build(cfg.read(net)).net.shape
    return shape.width, shape.height


def pictures(count: int, size: tuple[int, int] | None = None) -> list[Array]:
    """Tagged by their content; of many sizes unless one is given."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        width, height = size or (320 + 37 * number % 480, 240 + 53 * number % 400)
        coarse = rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
        made.append(np.ascontiguousarray(coarse.repeat(16, 0).repeat(16, 1)[:height, :width]))
    return made


def are_same(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and np.array_equal(found.boxes, expected.boxes)


def memory_in_use(observer: CudaDevice) -> tuple[int, int]:
    """Bytes of the card, by its driver, and of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return observer.card.memory - observer.free_memory(), pages * os.sysconf("SC_PAGE_SIZE")


def timed(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds."""
    for _ in range(20):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def run_at_once(asked: list[tuple[Callable[[int], None], int]]) -> None:
    workers = [threading.Thread(target=function, args=(seed,)) for function, seed in asked]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


PARTS = ("images", "loads", "threads", "calls", "pipeline", "cards", "start")


def chosen(names: list[str]) -> Iterator[str]:
    for name in names or PARTS:
        if name not in PARTS:
            raise SystemExit(f"{name}: expected one of {', '.join(PARTS)}")
        yield name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer of everything")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), quick=arguments.quick)
        for name in chosen(arguments.parts):
            begin = time.perf_counter()
            getattr(soak, name)()
            soak.add(name, "took", time.perf_counter() - begin, "s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in soak.rows], indent=1))
    return int(not all(row.is_good for row in soak.rows))


if __name__ == "__main__":
    sys.exit(main())
