"""What wears a device out: thousands of pictures, of loads, and threads that all ask at once.

Memory is read again and again, and a line is fitted to what it is after a while. An hour is that of
a camera with 30 pictures a second, or of a program that loads its network every second.
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
AN_HOUR = {"picture": 30 * 3600, "load": 3600}
MOST_BYTES = 1e6  # more in an hour
WARM = 2_000  # pictures before the first that counts: malloc takes a while to settle
SAMPLES = 50
SETTLED = 0.3  # of the samples: what comes before is still warming up
TAGGED = 48  # pictures


class Wear(Figures, ABC):
    """The parts that every device has; subclasses add their own."""

    def __init__(self, folder: Path, *, quick: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.quick = quick

    @abstractmethod
    def load_small(self, **options: Any) -> engine.Detector:
        """A network that takes little time, and finds some boxes in pictures()."""

    @abstractmethod
    def memory_in_use(self) -> dict[str, int]:
        """Bytes, by what they are of."""

    # ------------------------------------------------------------ parts

    def images(self) -> None:
        """Read between streams: inside one, a few pictures more or less are under way."""
        total = self.count(PICTURES)
        given = pictures(24)
        readings = []
        each = max(total // SAMPLES, 1)
        with self.load_small(batch=8) as detector:
            look_at(detector, given, WARM)
            start = time.perf_counter()
            for number in range(0, total, each):
                look_at(detector, given, each)
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
            asked = [0] * THREADS
            wrong: list[int] = []

            def ask(number: int) -> None:
                order = random.Random(number)
                for _ in range(calls):
                    tag = order.randrange(len(given))
                    if not are_same(detector(given[tag]), expected[tag]):
                        wrong.append(tag)
                    asked[number] += 1

            start = time.perf_counter()
            run_at_once([(ask, number) for number in range(THREADS)])
            seconds = time.perf_counter() - start
        total = sum(asked)
        self.add("threads", "threads", THREADS, "")
        self.add("threads", "answers", total, "", f"{THREADS * calls}", total == THREADS * calls)
        self.add("threads", "answers of others", len(wrong), "", "0", not wrong)
        self.add("threads", "distinct answers", distinct, "", ">= 40", distinct >= 40)
        self.add("threads", "pictures a second", total / seconds, "1/s")

    # ------------------------------------------------------------ what they share

    def count(self, whole: int) -> int:
        return whole // 5 if self.quick else whole

    def add_slopes(
        self, part: str, readings: Sequence[tuple[int, dict[str, int]]], unit: str
    ) -> None:
        settled = readings[int(len(readings) * SETTLED) :]
        numbers = [number for number, _ in settled]
        for name in settled[0][1]:
            in_use = [memory[name] for _, memory in settled]
            slope = fitted_slope(numbers, in_use)
            growth = slope * AN_HOUR[unit]
            is_good = growth < MOST_BYTES
            self.add(part, f"{name} memory, at the end", in_use[-1] / 2**20, "MiB")
            self.add(part, f"{name} memory, rise in all", (in_use[-1] - in_use[0]) / 1024, "KiB")
            self.add(part, f"{name} memory, slope", slope, f"B/{unit}")
            self.add(part, f"{name} memory, in an hour", growth / 1e6, "MB", "< 1", is_good)


def fitted_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the line by Theil and Sen: the median slope of all pairs.

    A library that takes a block once and keeps it makes one step, which least squares would take
    for a slope. What leaks goes on leaking.
    """
    first, second = np.triu_indices(len(x), 1)
    across, up = np.asarray(x, float), np.asarray(y, float)
    return float(np.median((up[second] - up[first]) / (across[second] - across[first])))


def look_at(detector: engine.Detector, given: Sequence[Array], count: int) -> None:
    for _ in detector.stream(islice(cycle(given), count)):
        pass


def memory_of_process() -> int:
    """Bytes that are resident, without what was freed and is only kept for later."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


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
    workers = [threading.Thread(target=function, args=(number,)) for function, number in asked]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main(kind: type[Wear], parts: Sequence[str], about: str) -> int:
    """Run the parts that the command line names, or all; 1 when a number is not what it should."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--quick", action="store_true", help="a fifth of everything")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wear = kind(Path(folder), quick=arguments.quick)
        for name in _chosen(arguments.parts, parts):
            begin = time.perf_counter()
            getattr(wear, name)()
            wear.add(name, "took", time.perf_counter() - begin, "s")
    if arguments.json:
        arguments.json.write_text(json.dumps(wear.as_dicts(), indent=1))
    return int(not wear.are_good)


def _chosen(names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    for name in names or known:
        if name not in known:
            raise SystemExit(f"{name}: expected one of {', '.join(known)}")
        yield name
