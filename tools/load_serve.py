"""Load test of `python -m engine serve` over loopback, with clients in other processes.

    python tools/load_serve.py [PART ...] [--quick] [--json FILE] [--cfg … --weights … --names …]

    sweep     closed loop, 1 to 64 clients: pictures a second, p50, p99
    overload  open loop at twice the server's capacity for 5 minutes: memory, rejections, answers,
              and the time to recover
    batching  one client, many clients without batching, many clients with batching

Without a .cfg the bundled model is served. With --random its weights are random, and the threshold
leaves some boxes. Every answer with status 200 is compared with the result of the detector alone.
The exit status is 1 if a figure misses its target.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.backends.cpu.workers import thread_count
from tools.figures import Figures
from tools.load.clients import ClientLoad, Responses, run_clients
from tools.load.server import ServerProcess, serving
from tools.load.workload import Workload, make_workload

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
MAX_REJECTION_SECONDS = 0.050
MAX_RECOVERY_SECONDS = 2.0
WARM_UP = 0.3  # of an overload, whose memory readings are dropped
PROCESSORS_PER_CLIENT = 4  # the server needs most processors
NOISE_MIB = 16  # by which the memory of a process fluctuates


class LoadTest(Figures):
    def __init__(self, workload: Workload, pool: Pool, options: argparse.Namespace) -> None:
        super().__init__()
        self._workload = workload
        self._pool = pool
        self._options = options

    def sweep(self) -> None:
        with self._serving() as process:
            self._closed_loop(process, CONCURRENCIES[2], self._options.seconds)  # warm-up
            for concurrency in CONCURRENCIES:
                name = f"{concurrency} client{'s' if concurrency > 1 else ''}"
                before = _batch_counts(process)
                responses = self._closed_loop(process, concurrency, self._options.seconds)
                self._add_rate(
                    "sweep", name, responses, _mean_batch(before, _batch_counts(process))
                )

    def overload(self) -> None:
        seconds = self._options.overload
        with self._serving("--queue", str(self._options.queue)) as process:
            brief = min(5.0, seconds)
            self._closed_loop(process, self._options.queue, brief)
            capacity = self._closed_loop(process, self._options.queue, brief).rate
            alone = float(np.median(self._closed_loop(process, 1, brief / 2).seconds_of(200)))
            self.add("overload", "capacity", capacity, "1/s")

            load = self._load(process, seconds=seconds, rate=self._options.times * capacity)
            readings, responses = self._run_with_memory(process, load)
            recovered = self._seconds_to_recover(process, alone)
        self.add("overload", "offered load", _sent(responses) / seconds, "1/s")
        self._check_answers(responses)
        self._check_rejections(responses)
        self._check_memory(readings)
        self.add(
            *("overload", "time to recover", recovered, "s"),
            *(f"<= {MAX_RECOVERY_SECONDS:g}", recovered <= MAX_RECOVERY_SECONDS),
        )

    def batching(self) -> None:
        options = self._options
        many = CONCURRENCIES[-1]
        rates = []
        for batch, concurrency in ((1, 1), (1, many), (options.batch, many)):
            with self._serving("--batch", str(batch)) as process:
                self._closed_loop(process, concurrency, options.seconds / 2)
                before = _batch_counts(process)
                responses = self._closed_loop(process, concurrency, options.seconds)
                name = f"{concurrency} client{'s' if concurrency > 1 else ''}, batch {batch}"
                runs = _mean_batch(before, _batch_counts(process))
                rates.append(self._add_rate("batching", name, responses, runs))
        self.add("batching", "speed-up by batching, many clients", rates[2] / rates[1], "x")
        ratio = rates[2] / rates[0]
        should = f">= {options.ratio:g}" if options.ratio else ""
        is_good = not options.ratio or ratio >= options.ratio
        self.add("batching", "speed-up by batching, from one client", ratio, "x", should, is_good)

    # ------------------------------------------------------------ checks

    def _check_answers(self, responses: Responses) -> None:
        accepted = responses.seconds_of(200)
        self.add("overload", "pictures answered a second", responses.rate, "1/s")
        self.add("overload", "p50 of answers", 1e3 * _at(accepted, 50), "ms")
        self.add("overload", "p99 of answers", 1e3 * _at(accepted, 99), "ms")
        self._add_zero("wrong answers", responses.wrong)
        self._add_zero("broken connections", responses.failures)
        self._add_zero("unsent requests", responses.unsent)
        others = len(responses.statuses) - len(accepted) - len(responses.seconds_of(503))
        self._add_zero("other statuses than 200 and 503", others)

    def _check_rejections(self, responses: Responses) -> None:
        rejected = responses.seconds_of(503)
        self.add("overload", "rejections", len(rejected), "", "> 0", len(rejected) > 0)
        self._add_zero("rejections without Retry-After", responses.without_retry)
        for percent in (50, 99, 100):
            name = "slowest rejection" if percent == 100 else f"p{percent} of rejections"
            self.add("overload", name, 1e3 * _at(rejected, percent), "ms")
        in_time = float((rejected <= MAX_REJECTION_SECONDS).mean()) * 100 if len(rejected) else 0.0
        least = self._options.in_time
        self.add(
            *("overload", f"rejected within {MAX_REJECTION_SECONDS * 1e3:g} ms", in_time, "%"),
            *(f">= {least:g}", in_time >= least),
        )

    def _check_memory(self, readings: list[tuple[float, float]]) -> None:
        times, used = np.array(readings[int(len(readings) * WARM_UP) :]).T
        half = len(used) // 2
        growth = float(used[half:].max() - used[:half].max())
        self.add("overload", "peak memory", float(used.max()), "MiB")
        self.add("overload", "memory growth", float(np.polyfit(times, used, 1)[0]) * 60, "MiB/min")
        self.add(
            *("overload", "peak memory, second half minus first", growth, "MiB"),
            *(f"<= {NOISE_MIB}", growth <= NOISE_MIB),
        )

    # ------------------------------------------------------------ requests

    def _serving(self, *words: str) -> Any:
        options = self._options
        return serving(
            *self._workload.options,
            *("--batch", str(options.batch), "--device", options.device),
            *("--precision", options.precision, "--wait-ms", str(options.wait_ms)),
            *("--queue", str(2 * CONCURRENCIES[-1])),
            *words,
        )

    def _load(self, process: ServerProcess, **more: Any) -> ClientLoad:
        workload = self._workload
        # A GPU uses other algorithms for other batch sizes, so scores near the threshold differ.
        share = 1.0 if self._options.device == "cpu" else 0.5
        files = process.port, workload.path, workload.bodies, workload.expected
        return ClientLoad(*files, share=share, **more)

    def _closed_loop(self, process: ServerProcess, concurrency: int, seconds: float) -> Responses:
        clients = min(self._options.clients, concurrency)
        shares = [concurrency // clients + (n < concurrency % clients) for n in range(clients)]
        loads = [self._load(process, seconds=seconds, concurrency=each) for each in shares]
        return Responses.merged(self._pool.map(run_clients, loads, chunksize=1))

    def _run_with_memory(
        self, process: ServerProcess, load: ClientLoad
    ) -> tuple[list[tuple[float, float]], Responses]:
        """Run the load; return readings of the server's memory as (seconds, MiB), and responses."""
        clients = self._options.clients
        assert load.rate
        shares = [replace(load, rate=load.rate / clients)] * clients
        running = self._pool.map_async(run_clients, shares, chunksize=1)
        start = time.perf_counter()
        readings = []
        while not running.ready():
            readings.append((time.perf_counter() - start, process.memory_mib()))
            running.wait(0.25)
        return readings, Responses.merged(running.get())

    def _seconds_to_recover(self, process: ServerProcess, alone: float) -> float:
        """Return the seconds until a picture is answered about as fast as on an idle server."""
        start = time.perf_counter()
        while time.perf_counter() - start < 30:
            before = time.perf_counter()
            responses = run_clients(self._load(process, seconds=0.0001))
            if responses.statuses == [200] and time.perf_counter() - before < 3 * alone + 0.05:
                break
        return time.perf_counter() - start

    # ------------------------------------------------------------ rows

    def _add_rate(self, part: str, name: str, responses: Responses, mean_batch: float) -> float:
        answered = responses.seconds_of(200)
        is_good = len(answered) == _sent(responses) and not responses.wrong
        self.add(part, f"{name}: pictures a second", responses.rate, "1/s", "all correct", is_good)
        self.add(part, f"{name}: p50", 1e3 * _at(answered, 50), "ms")
        self.add(part, f"{name}: p99", 1e3 * _at(answered, 99), "ms")
        self.add(part, f"{name}: mean batch size", mean_batch, "")
        self.add(part, f"{name}: busiest client CPU", 100 * responses.busy, "%")
        return responses.rate

    def _add_zero(self, what: str, value: int) -> None:
        self.add("overload", what, value, "", "0", value == 0)


def _batch_counts(process: ServerProcess) -> tuple[float, float]:
    return (
        process.metric("engine_batch_pictures_sum"),
        process.metric("engine_batch_pictures_count"),
    )


def _mean_batch(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def _sent(responses: Responses) -> int:
    return len(responses.statuses) + responses.failures + responses.unsent


def _at(seconds: np.ndarray, percent: float) -> float:
    return float(np.percentile(seconds, percent)) if len(seconds) else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts: dict[str, Callable[[LoadTest], None]] = {
        "sweep": LoadTest.sweep,
        "overload": LoadTest.overload,
        "batching": LoadTest.batching,
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--json", type=Path)
    for name in ("--cfg", "--weights", "--names"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--random", action="store_true", help="random weights for the cfg")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--wait-ms", type=float, default=5.0)
    parser.add_argument("--queue", type=int, default=32, help="queue length in an overload")
    parser.add_argument("--seconds", type=float, help="of each step of the sweep (10)")
    parser.add_argument("--overload", type=float, help="seconds of the overload (300)")
    parser.add_argument(
        "--times", type=float, default=2.0, help="overload, as multiple of capacity"
    )
    parser.add_argument("--in-time", type=float, default=100.0, help="least %% rejected in time")
    parser.add_argument("--ratio", type=float, help="least speed-up by batching")
    clients = max(1, thread_count() // PROCESSORS_PER_CLIENT)
    parser.add_argument(
        *("--clients",), type=int, default=clients, help=f"processes (here {clients})"
    )
    parser.add_argument("--size", type=_size, default=(640, 480), metavar="WxH")
    options = parser.parse_args()
    options.seconds = options.seconds or (2.0 if options.quick else 10.0)
    options.overload = options.overload or (10.0 if options.quick else 300.0)
    for name in options.parts:
        if name not in parts:
            parser.error(f"{name}: expected one of {', '.join(parts)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the server
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(options.clients) as pool:
        test = LoadTest(make_workload(options, Path(folder)), pool, options)
        for name in options.parts or ("sweep", "overload"):
            with suppress(KeyboardInterrupt):
                parts[name](test)
    if options.json:
        about = {"model": test._workload.name, "device": options.device, "batch": options.batch}
        options.json.write_text(json.dumps({**about, "rows": test.as_dicts()}, indent=1) + "\n")
    return int(not test.are_good)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


if __name__ == "__main__":
    sys.exit(main())
