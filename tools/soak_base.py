"""Soak tests that every device shares: many pictures, many loads, and concurrent threads.

The growth of memory is the slope of a line fitted to repeated readings after a warm-up. It is
stated per hour, for a camera with 30 pictures a second or a program that loads a network every
second.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from tools.figures import Figures

Array = NDArray[Any]

PICTURES, LOADS, THREADS, CALLS = 100_000, 1_000, 32, 500
PER_HOUR = {"picture": 30 * 3600, "load": 3600}
MAX_GROWTH = 1e6  # bytes per hour
WARM_UP = 2_000  # pictures before the first reading, until malloc has settled
SAMPLES = 50
DISCARDED = 0.3  # of the samples, which still belong to the warm-up
TAGGED = 48  # pictures


class SoakTest(Figures, ABC):
    """The parts that every device has; subclasses add their own."""

    def __init__(self, folder: Path, *, quick: bool = False, precision: str = "float32") -> None:
        super().__init__()
        self.precision = precision
        self.folder = folder
        self.quick = quick

    @abstractmethod
    def load_small(self, **options: Any) -> engine.Detector:
        """Load a fast network that finds some boxes in pictures()."""

    @abstractmethod
    def memory_in_use(self) -> dict[str, int]:
        """Return bytes by kind of memory."""

    # ------------------------------------------------------------ parts

    def images(self) -> None:
        """Stream pictures; memory is read between streams, when no pictures are in flight."""
        total = self.count(PICTURES)
        given = pictures(24)
        readings = []
        each = max(total // SAMPLES, 1)
        with self.load_small(batch=8) as detector:
            run_stream(detector, given, WARM_UP)
            start = time.perf_counter()
            for number in range(0, total, each):
                run_stream(detector, given, each)
                readings.append((number, self.memory_in_use()))
            seconds = time.perf_counter() - start
            planned = detector.memory.total
        self.add_slopes("images", readings, "picture")
        self.add("images", "pictures", total, "")
        self.add("images", "pictures a second", total / seconds, "1/s")
        self.add("images", "planned", planned / 2**20, "MiB")

    def loads(self) -> None:
        total = self.count(LOADS)
        (picture,) = pictures(1)
        readings, times = [], []
        for number in range(total):
            start = time.perf_counter()
            with self.load_small() as detector:
                detector(picture)
            times.append(time.perf_counter() - start)
            if number % max(total // SAMPLES, 1) == 0:
                readings.append((number, self.memory_in_use()))
        self.add_slopes("loads", readings, "load")
        self.add("loads", "loads", total, "")
        self.add("loads", "load, first result, close", median(times) * 1e3, "ms")

    def threads(self) -> None:
        calls = self.count(CALLS)
        given = pictures(TAGGED)
        with self.load_small() as detector:
            expected = [detector(picture) for picture in given]
            distinct = len({each.boxes.tobytes() for each in expected})
            answered = [0] * THREADS
            wrong: list[int] = []

            def call_often(number: int) -> None:
                order = random.Random(number)
                for _ in range(calls):
                    tag = order.randrange(len(given))
                    if not are_same(detector(given[tag]), expected[tag]):
                        wrong.append(tag)
                    answered[number] += 1

            start = time.perf_counter()
            run_concurrently([(call_often, number) for number in range(THREADS)])
            seconds = time.perf_counter() - start
        total = sum(answered)
        self.add("threads", "threads", THREADS, "")
        self.add("threads", "answers", total, "", f"{THREADS * calls}", total == THREADS * calls)
        self.add("threads", "wrong answers", len(wrong), "", "0", not wrong)
        self.add("threads", "distinct answers", distinct, "", ">= 40", distinct >= 40)
        self.add("threads", "pictures a second", total / seconds, "1/s")

    # ------------------------------------------------------------ helpers

    def count(self, full: int) -> int:
        return full // 5 if self.quick else full

    def add_slopes(
        self, part: str, readings: Sequence[tuple[int, dict[str, int]]], unit: str
    ) -> None:
        settled = readings[int(len(readings) * DISCARDED) :]
        numbers = [number for number, _ in settled]
        for name in settled[0][1]:
            in_use = [memory[name] for _, memory in settled]
            slope = fitted_slope(numbers, in_use)
            growth = slope * PER_HOUR[unit]
            is_good = growth < MAX_GROWTH
            self.add(part, f"{name} memory at the end", in_use[-1] / 2**20, "MiB")
            self.add(part, f"{name} memory, total growth", (in_use[-1] - in_use[0]) / 1024, "KiB")
            self.add(part, f"{name} memory, slope", slope, f"B/{unit}")
            self.add(part, f"{name} memory, growth per hour", growth / 1e6, "MB", "< 1", is_good)


def fitted_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the Theil-Sen slope: the median of the slopes of all pairs.

    A block that is allocated once and kept makes one step, which least squares would report as a
    slope; a leak grows all the time.
    """
    first, second = np.triu_indices(len(x), 1)
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    return float(np.median((ys[second] - ys[first]) / (xs[second] - xs[first])))


def run_stream(detector: engine.Detector, given: Sequence[Array], count: int) -> None:
    for _ in detector.stream(islice(cycle(given), count)):
        pass


def memory_of_process() -> int:
    """Return resident bytes, after garbage collection and after malloc has released free memory."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def pictures(count: int, size: tuple[int, int] | None = None) -> list[Array]:
    """Return pictures that differ in content, and in size unless one is given."""
    rng = np.random.default_rng(0)
    result = []
    for number in range(count):
        width, height = size or (320 + 37 * number % 480, 240 + 53 * number % 400)
        coarse = rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
        result.append(np.ascontiguousarray(coarse.repeat(16, 0).repeat(16, 1)[:height, :width]))
    return result


def are_same(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and np.array_equal(found.boxes, expected.boxes)


def timed(call: Callable[[], object], repeats: int) -> float:
    """Return the median milliseconds of a call, after a warm-up."""
    for _ in range(20):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def run_concurrently(calls: list[tuple[Callable[[int], None], int]]) -> None:
    workers = [threading.Thread(target=function, args=(number,)) for function, number in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main(kind: type[SoakTest], parts: Sequence[str], doc: str) -> int:
    """Run the parts that the command line names, or all; return 1 if a figure misses its target."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--quick", action="store_true", help="a fifth of everything")
    parser.add_argument("--precision", default="float32", help="of images, loads and threads")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        test = kind(Path(folder), quick=arguments.quick, precision=arguments.precision)
        for name in _chosen(arguments.parts, parts):
            begin = time.perf_counter()
            getattr(test, name)()
            test.add(name, "took", time.perf_counter() - begin, "s")
    if arguments.json:
        arguments.json.write_text(json.dumps(test.as_dicts(), indent=1))
    return int(not test.are_good)


def _chosen(names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    for name in names or known:
        if name not in known:
            raise SystemExit(f"{name}: expected one of {', '.join(known)}")
        yield name
