"""Time what surrounds a run on a card: one call, a stream of arrays, and decoding of JPEGs.

    python tools/around_a_run.py [PART ...] --jpegs FOLDER --json rows.json

    calls    one call with an array and with a pinned one; its graph alone; and the same copies,
             launch and wait in a loop without the engine, which the card and its driver need
    arrays   streams of ordinary arrays and of pinned ones, and the network alone
    jpegs    the JPEGs of a folder, by one thread and by streams of 16 workers
    decoded  the same JPEGs decoded by the card, alone and as a stream to boxes

It runs yolov4-tiny in float16 with random weights and about 20 boxes a picture before NMS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engine
from engine.backends.base import Placed
from engine.vision import image
from engine.vision.plain_jpeg import plain_jpeg
from engine.vision.resize import Placement
from tools import random_model
from tools.figures import Figures
from tools.soak_base import Array, pictures, timed

CFG = Path(__file__).resolve().parent.parent / "cfg" / "yolov4-tiny.cfg"
SIDES = (416, 416)
BOXES = 20  # in a picture before NMS
BATCH = 64
ROUNDS = 3  # the best counts, since a machine has other load
CALLS = 2_000
STREAMED = 300  # batches, so that filling and draining the pipeline does not matter
FILES = 20_000
WORKERS = 16
DECODING_SECONDS = 3.0
UNITS = 2  # threads that give the card's decoder its batches
DECODING_WORKERS = (2, 4)  # of streams that the card decodes
PARTS = ("calls", "arrays", "jpegs", "decoded")


class AroundARun(Figures):
    def __init__(self, folder: Path, *, device: str, jpegs: Path | None, quick: bool) -> None:
        super().__init__()
        self._files = CFG, random_model.save(CFG, folder)
        self._device = device
        self._jpegs = jpegs_in(jpegs)
        self._divisor = 20 if quick else 1
        self._threshold = 0.0

    def load(self, **options: Any) -> engine.Detector:
        if not self._threshold:
            with engine.load(*self._files, device=self._device) as detector:
                self._threshold = random_model.threshold(detector, pictures(6, SIDES), BOXES)
        options = {"device": self._device, "precision": "float16", **options}
        return engine.load(*self._files, threshold=self._threshold, **options)

    # ------------------------------------------------------------ parts

    def calls(self) -> None:
        (given,) = pictures(1, SIDES)
        count = max(CALLS // self._divisor, 20)
        with self.load() as detector:
            pinned = detector.pin(np.stack([given]))[0]
            for name, picture, most in (("array", given, 0.18), ("pinned array", pinned, 0.14)):
                taken = best(lambda picture=picture: timed(lambda: detector(picture), count))  # type: ignore[misc]
                self.add("calls", f"one {name}", taken, "ms", f"<= {most}", taken <= most)
            for name, milliseconds in floors(detector, given, pinned, count).items():
                self.add("calls", name, milliseconds, "ms")

    def arrays(self) -> None:
        given = pictures(BATCH, SIDES)
        rounds = max(STREAMED // self._divisor, 8)
        with self.load(batch=BATCH) as detector:
            program: Any = detector._program
            placed = [Placed(each, Placement(SIDES, SIDES)) for each in given]
            times = program.measure(placed, repeats=rounds, threshold=self._threshold)
            self.add("arrays", "network alone, to candidates", BATCH * 1e3 / median(times), "1/s")
            frames = list(detector.pin(np.stack(given)))
            rate = -best(lambda: -stream_rate(detector, frames, BATCH * rounds))
            self.add("arrays", "pinned arrays", rate, "1/s")
            for count in (BATCH, 8 * BATCH):
                many = [given[number % BATCH].copy() for number in range(count)]
                rate = -best(lambda many=many: -stream_rate(detector, many, BATCH * rounds))  # type: ignore[misc]
                name = f"{count} ordinary arrays in turn"
                self.add("arrays", name, rate, "1/s", ">= 40000", rate >= 40_000)

    def jpegs(self) -> None:
        count = max(FILES // self._divisor, 200)
        by_pillow = -best(lambda: -read_rate(self._jpegs, max(count // 20, 50), with_pillow))
        self.add("jpegs", "decoded by one thread with Pillow", by_pillow, "1/s")
        single = -best(lambda: -read_rate(self._jpegs, max(count // 20, 50), image.read))
        self.add("jpegs", "read by one thread", single, "1/s")
        alone = rate_of_processes(self._jpegs, DECODING_SECONDS / self._divisor)
        self.add("jpegs", f"by {WORKERS} processes that do nothing else", alone, "1/s")
        self.add("jpegs", "their share of processes x one thread", alone / single / WORKERS, "x")
        with self.load(batch=BATCH) as detector:
            run(detector.stream(islice(cycle(self._jpegs), count // 4), workers=WORKERS))
            files = list(islice(cycle(self._jpegs), count))
            start, used = time.perf_counter(), time.process_time()
            run(detector.stream(files, workers=WORKERS))
            rate = count / (time.perf_counter() - start)
            used = (time.process_time() - used) / count * 1e6
        share = rate / by_pillow / WORKERS
        self.add("jpegs", f"to boxes, {WORKERS} workers", rate, "1/s")
        self.add("jpegs", "processor time of the main process", used, "us/picture")
        name = "share of workers x one thread"
        self.add("jpegs", name, rate / single / WORKERS, "x")
        self.add("jpegs", f"{name} with Pillow", share, "x", ">= 0.8", share >= 0.8)

    def decoded(self) -> None:
        count = max(FILES // self._divisor, 200)
        files = list(islice(cycle(self._jpegs), count))
        with self.load(batch=BATCH, decode="gpu") as detector:
            reader: Any = detector._runs._device_reader
            alone = -best(lambda: -decoder_rate(reader._decoder, self._jpegs, count))
            self.add("decoded", f"by the card alone, {UNITS} threads", alone, "1/s")
            for workers in DECODING_WORKERS:
                rate = -best(lambda workers=workers: -file_rate(detector, files, workers))  # type: ignore[misc]
                name = f"to boxes, {workers} workers"
                self.add("decoded", name, rate, "1/s", ">= 10000", rate >= 10_000)
                share = rate / alone
                self.add("decoded", f"{name}: share", share, "x", ">= 0.85", share >= 0.85)


def jpegs_in(folder: Path | None) -> list[str]:
    return sorted(map(str, folder.glob("*.jp*g"))) if folder else []


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS))


def run(results: Iterable[object]) -> None:
    for _ in results:
        pass


def stream_rate(detector: engine.Detector, given: Sequence[Array], count: int) -> float:
    pictures = list(islice(cycle(given), count))  # those of an iterator would be copied
    run(detector.stream(pictures[: BATCH * 8]))
    start = time.perf_counter()
    run(detector.stream(pictures))
    return count / (time.perf_counter() - start)


def file_rate(detector: engine.Detector, files: Sequence[str], workers: int) -> float:
    run(detector.stream(files[: BATCH * 8], workers=workers))
    start = time.perf_counter()
    run(detector.stream(files, workers=workers))
    return len(files) / (time.perf_counter() - start)


def decoder_rate(decoder: Any, files: Sequence[str], count: int) -> float:
    """Return the pictures a second that the card's decoder decodes from memory."""
    plain = [plain_jpeg(Path(each).read_bytes()) for each in files]
    batch = list(islice(cycle(each for each in plain if each is not None), BATCH))

    def decode(_: int) -> None:
        assert None not in decoder.decode(batch)

    with ThreadPoolExecutor(UNITS) as threads:
        start = time.perf_counter()
        run(threads.map(decode, range(count // BATCH)))
        return count // BATCH * BATCH / (time.perf_counter() - start)


def read_rate(files: Sequence[str], count: int, read: Callable[[str], object]) -> float:
    start = time.perf_counter()
    for each in islice(cycle(files), count):
        read(each)
    return count / (time.perf_counter() - start)


def with_pillow(file: str) -> Array:
    with Image.open(file) as opened:
        return np.asarray(opened.convert("RGB"))


READING = """
import sys, time
from itertools import cycle
sys.path.insert(0, sys.argv[1])
from engine.vision import image
from engine.vision.plain_jpeg import plain_jpeg
files, start, seconds = cycle(sys.argv[4:]), float(sys.argv[2]), float(sys.argv[3])
while time.time() < start:
    image.read(next(files))
count = 0
while time.time() < start + seconds:
    image.read(next(files))
    count += 1
print(count)
"""


def rate_of_processes(files: Sequence[str], seconds: float) -> float:
    """Return the pictures a second that independent processes read together."""
    root, start = str(Path(__file__).resolve().parent.parent), time.time() + seconds
    words = [sys.executable, "-c", READING, root, str(start), str(seconds), *files]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(WORKERS)]
    return sum(int(each.communicate()[0]) for each in processes) / seconds


def floors(
    detector: engine.Detector, array: Array, pinned: Array, repeats: int
) -> dict[str, float]:
    """Return the milliseconds that the card and its driver need for a call, without the engine."""
    program: Any = detector._program
    context, device = program._context, program._device
    api, stream = context.driver_api, context.stream.handle
    (slot, *_), graph = device.slots, device._graphs[True, True, True, 1]

    def loop(*, uploads: bool) -> float:
        def once() -> None:
            if uploads:
                api.upload(slot.block, pinned.ctypes.data, pinned.nbytes, stream)
            graph.launch()
            api.record(slot.done, stream)
            api.wait(slot.done)

        with context.enqueue_lock:
            return timed(once, repeats)

    detector(array)  # from now on the graph reads device memory
    alone = [context.run(lambda: context.time_of(graph.launch)) for _ in range(repeats)]
    rows = {
        "its graph alone": median(alone),
        "launch and wait, without the engine": loop(uploads=False),
        "the same and the copy of a pinned picture": loop(uploads=True),
    }
    for _ in range(3):
        detector(pinned)  # and now host memory
    rows["launch and wait, the picture read in place"] = loop(uploads=False)
    return rows


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--jpegs", type=Path, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    parts = arguments.parts or PARTS
    if unknown := [each for each in parts if each not in PARTS]:
        parser.error(f"PART: expected {', '.join(PARTS)}, got {unknown[0]!r}")
    if not {"jpegs", "decoded"}.isdisjoint(parts) and not jpegs_in(arguments.jpegs):
        parser.error("--jpegs: expected a folder with JPEGs, for the parts jpegs and decoded")
    with tempfile.TemporaryDirectory() as folder:
        figures = AroundARun(
            Path(folder),
            device=arguments.device,
            jpegs=arguments.jpegs,
            quick=arguments.quick,
        )
        for part in parts:
            getattr(figures, part)()
    if arguments.json:
        arguments.json.write_text(json.dumps(figures.as_dicts(), indent=1) + "\n")
    return 0 if figures.are_good else 1


if __name__ == "__main__":
    os.environ.setdefault("ENGINE_TUNE", "10")  # networks are tuned before they run
    sys.exit(main())
