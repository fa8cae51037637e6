"""Soak test and latency figures of a CUDA device.

    python tools/soak_cuda.py [PART ...] [--json rows.json] [--quick] [--precision int8]

    images    100,000 pictures of many sizes: growth of device and host memory
    loads     1,000 loads and closes: growth of device and host memory
    threads   32 threads on one detector, 500 distinguishable pictures each
    calls     host overhead of a batch-1 call on top of the device's copies and kernels: the best of
              three rounds on the fastest of some cores, since access to the card from cores of
              another NUMA node is slower
    pipeline  pictures to boxes, at batch 64 and one by one, compared with forward passes alone
    cards     two cards compared with one
    start     from import to the first result, with an empty and with a filled cache

Background compilation of the autotuner ends before anything is timed. Every part prints a line for
each figure with its target. Weights are random. The exit status is 1 if a figure misses its target.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engine
from engine.backends.base import Placed
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import (
    compile_children,
    pycuda_loader,
)
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.vision.resize import Placement
from tools import random_model, soak_cpu
from tools.soak_base import Array, SoakTest, main, memory_of_process, pictures, timed

ROOT = Path(__file__).resolve().parent.parent
SMALL, MIDDLE = ROOT / "cfg" / "yolov3-tiny.cfg", ROOT / "cfg" / "yolov4-tiny.cfg"
LARGE = ROOT / "cfg" / "yolov4.cfg"
WARM_STARTS = 3
BOXES = 20  # in a picture before NMS, on average
CORES = 8  # on which a call is timed
ROUNDS = 3  # of calls; the fastest counts, since the machine has other load
STREAMED = 200  # batches, so that filling and draining the pipeline does not matter


class SoakCuda(SoakTest):
    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._thresholds: dict[object, float] = {}
        self._observer: CudaDevice | None = None

    def load_small(self, **options: Any) -> engine.Detector:
        if self.precision == "int8":  # the bundled network, which has scales
            known = {"precision": "int8", "threshold": soak_cpu.THRESHOLD}
            return engine.load(device="cuda:0", **known, **options)  # type: ignore[arg-type]
        return self.load(SMALL, precision=self.precision, **options)

    def memory_in_use(self) -> dict[str, int]:
        """Return the memory of the card, from its driver, and of this process."""
        # A device of its own keeps the context alive, since creating one takes longer than a load.
        self._observer = self._observer or CudaDevice(0)
        device = self._observer.card.memory - self._observer.free_memory()
        return {"device": device, "host": memory_of_process()}

    # ------------------------------------------------------------ parts

    def calls(self) -> None:
        for net in (SMALL, MIDDLE):
            for precision in ("float32", "float16"):
                self.add_calls(net, precision, 100 if self.quick else 400)

    def add_calls(self, net: Path, precision: str, repeats: int) -> None:
        device = CudaDevice(0)
        network = graph.build(cfg.read(net))
        plan = optimise(lower(network, random_weights.arrays(network)), device.passes)
        with compilation_finished():
            program = device.compile(plan, precision=precision)
        shape = plan.source.shape
        sides = shape.width, shape.height
        given = pictures(1, sides)
        threshold = self.threshold(net, given)
        images = np.random.default_rng(0).random((1, *shape.sides), np.float32)
        frames = np.stack(given)
        program.pin(frames)
        variants: list[tuple[str, Any, Callable[[], object]]] = [
            ("floats", images, lambda: program.detect(images, threshold=threshold))
        ]
        for source, pixels in (("a picture", given[0]), ("a pinned picture", frames[0])):
            placed = [Placed(pixels, Placement(sides, sides))]
            start = partial(program.start_detect, placed, threshold=threshold)
            variants.append((source, placed, lambda start=start: start().result()))  # type: ignore[misc]
        for source, placed, call in variants:
            name = f"{net.stem} {precision}, from {source}"
            with on_fastest_core(call) as slowest:
                wall = min(timed(call, repeats) for _ in range(ROUNDS)) * 1e3
            on_device = median(times_on_device(program, placed, threshold, repeats)) * 1e3
            self.add("calls", f"{name}: call", wall, "us")
            self.add("calls", f"{name}: on the slowest core", slowest, "us")
            self.add("calls", f"{name}: copies and kernels", on_device, "us")
            host = wall - on_device
            if source == "floats":  # no target: four times the bytes of a picture
                self.add("calls", f"{name}: host overhead", host, "us")
            else:
                self.add(*("calls", f"{name}: host overhead", host, "us"), *("<= 60", host <= 60))
        program.close()
        device.close()

    def pipeline(self) -> None:
        for precision in ("float32", "float16"):
            self.add_streams(MIDDLE, precision, 64, STREAMED)
        for precision in ("float32", "float16"):
            self.add_single(LARGE, precision, 100 if self.quick else 400)

    def add_streams(self, net: Path, precision: str, batch: int, rounds: int) -> None:
        """Stream pageable arrays, then rows of one pinned array."""
        given = pictures(batch, size_of(net))
        with self.load(net, given=given, batch=batch, precision=precision) as detector:
            images = np.zeros((batch, 3, *reversed(detector.size)), np.float32)
            images[:] = np.random.default_rng(0).random(images.shape[1:], np.float32)
            program: Any = detector._program
            # The number that is streamed, because a card throttles only under longer load.
            forward = batch * 1e3 / median(program.measure(images, repeats=rounds))
            found = sum(map(len, detector.stream(given * 4))) / len(given) / 4
            copied = stream_rate(detector, given, rounds)
            pinned = stream_rate(detector, list(detector.pin(np.stack(given))), rounds)
        name = f"{net.stem} {precision}, batch {batch}"
        self.add("pipeline", f"{name}: boxes in a picture", found, "")
        self.add("pipeline", f"{name}: forward", forward, "1/s")
        self.add("pipeline", f"{name}: pictures to boxes, copied", copied, "1/s")
        self.add("pipeline", f"{name}: share, copied", copied / forward, "x")
        self.add("pipeline", f"{name}: pictures to boxes, pinned", pinned, "1/s")
        share = pinned / forward
        self.add("pipeline", f"{name}: share, pinned", share, "x", ">= 0.85", share >= 0.85)

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
        if pycuda_loader.count() < 2:
            self.add("cards", "cards", pycuda_loader.count(), "", "2 for this part")
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
        self.add("cards", "speed-up of two cards", ratio, "x", ">= 1.9", ratio >= 1.9)

    def start(self) -> None:
        files = self.files(SMALL)
        with tempfile.TemporaryDirectory() as cache:
            cold = first_result(*files, cache)
            self.add("start", "empty cache", cold, "s", "<= 25", cold <= 25)
            warm = [first_result(*files, cache) for _ in range(WARM_STARTS)]
        for number, seconds in enumerate(warm, 1):
            self.add("start", f"filled cache, start {number}", seconds, "s")
        # The first start may still measure algorithms that were not compiled in time before.
        typical = median(warm)
        name = f"filled cache, median of {WARM_STARTS} (the first may still measure)"
        self.add("start", name, typical, "s", "<= 1.2", typical <= 1.2)

    # ------------------------------------------------------------ helpers

    def load(
        self,
        net: Path,
        *,
        given: list[Array] | None = None,
        device: str = "cuda:0",
        **options: Any,
    ) -> engine.Detector:
        threshold = self.threshold(net, given, options.get("size"))
        with compilation_finished():
            return engine.load(*self.files(net), device=device, threshold=threshold, **options)

    def threshold(
        self, net: Path, given: list[Array] | None = None, size: int | None = None
    ) -> float:
        """Return a threshold with which random weights leave as many boxes as a street scene."""
        sides = given[0].shape if given else None
        key = net, size, sides
        if key not in self._thresholds:
            with compilation_finished():
                detector = engine.load(*self.files(net), device="cuda:0", size=size)
            with detector:
                seen = (given or pictures(6))[:6]
                self._thresholds[key] = random_model.threshold(detector, seen, BOXES)
        return self._thresholds[key]

    def files(self, net: Path) -> tuple[Path, Path]:
        path = self.folder / f"{net.stem}.weights"
        return net, path if path.exists() else random_model.save(net, self.folder)


def times_on_device(program: Any, images: Any, threshold: float, repeats: int) -> list[float]:
    """Return milliseconds of copies and kernels, with the device kept busy before each run.

    Its pictures are written again: the device reads slower what a CPU has just written.
    """
    put, device = program._any(images, threshold), program._device

    def once() -> float:
        job = put(slot)
        for _ in range(2):
            device.start(slot, job)
        return sum(device.timed_on_stream(slot, put(slot)))

    with program._slot() as slot:
        return [program._context.run(once) for _ in range(repeats)]


@contextmanager
def on_fastest_core(call: Callable[[], object]) -> Iterator[float]:
    """Pin this thread to the fastest core; yield the microseconds of a call on the slowest."""
    all_cores = os.sched_getaffinity(0)
    candidates = sorted(all_cores)[:: max(len(all_cores) // CORES, 1)]
    microseconds = {}
    try:
        for core in candidates:
            os.sched_setaffinity(0, {core})
            microseconds[core] = timed(call, 50) * 1e3
        os.sched_setaffinity(0, {min(candidates, key=microseconds.__getitem__)})
        yield max(microseconds.values())
    finally:
        os.sched_setaffinity(0, all_cores)


FIRST_RESULT = """
import sys, time
start = time.perf_counter()
sys.path.insert(0, sys.argv[3])
import numpy, engine
with engine.load(sys.argv[1], sys.argv[2], device="cuda:0") as detector:
    detector(numpy.zeros((300, 400, 3), numpy.uint8))
    print(time.perf_counter() - start)
"""


def first_result(net: Path, weights: Path, cache: str) -> float:
    """Return the seconds in a new process, with the default autotuning."""
    environment = {key: value for key, value in os.environ.items() if key != "ENGINE_TUNE"}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RESULT, str(net), str(weights), str(ROOT)],
        env={**environment, "ENGINE_CACHE": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


def stream_rate(detector: engine.Detector, given: list[Array], rounds: int) -> float:
    """Return pictures per second, from arrays to boxes."""
    for _ in detector.stream(given * 4):
        pass
    start = time.perf_counter()
    for _ in detector.stream(islice(cycle(given), len(given) * rounds)):
        pass
    return len(given) * rounds / (time.perf_counter() - start)


@contextmanager
def compilation_finished() -> Iterator[None]:
    """Wait at the end for compilations that were started inside, which would use all cores."""
    before = set(threading.enumerate())
    yield
    for each in set(threading.enumerate()) - before:
        if each.name == compile_children.THREAD:
            each.join()


def size_of(net: Path) -> tuple[int, int]:
    """Return width and height of the input of a network."""
    shape = graph.build(cfg.read(net)).net.shape
    return shape.width, shape.height


PARTS = ("images", "loads", "threads", "calls", "pipeline", "cards", "start")


if __name__ == "__main__":
    os.environ.setdefault("ENGINE_TUNE", "10")  # networks are tuned before they run
    sys.exit(main(SoakCuda, PARTS, __doc__))
