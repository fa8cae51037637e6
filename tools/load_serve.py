"""Puts a load on `python -m engine serve`, over loopback, from processes of its own.

    python tools/load_serve.py [PART ...] [--quick] [--json FILE] [--cfg … --weights … --names …]

    sweep     1 to 64 clients that ask as soon as they are answered: pictures a second, p50, p99
    overload  pictures come at twice the rate that the server can do, for 5 minutes: memory,
              refusals, answers, and how soon it is as it was
    batching  one picture after the other, many clients without batches, many clients with them

Without a .cfg the model in the box is served. With --random its weights are random ones, and the
threshold is one that leaves some boxes. Every answer that is not a refusal is compared with what
the detector finds alone. The exit status is 1 when a number is not what it should be.
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
from tools.load.clients import Seen, Work, run_clients
from tools.load.server import Process, serving
from tools.load.subject import Subject, subject_of

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
REFUSED_WITHIN = 0.050
RECOVERED_WITHIN = 2.0
SETTLED = 0.3  # of an overload: what comes before is warming up
PROCESSORS_A_CLIENT = 4  # the server needs most of them
NOISE_MIB = 16  # that a process's memory may move by without growing


class Load(Figures):
    def __init__(self, subject: Subject, pool: Pool, chosen: argparse.Namespace) -> None:
        super().__init__()
        self._subject = subject
        self._pool = pool
        self._chosen = chosen

    def sweep(self) -> None:
        with self._serving() as process:
            self._in_turn(process, CONCURRENCIES[2], self._chosen.seconds)  # warming up
            for concurrency in CONCURRENCIES:
                name = f"{concurrency} client{'s' if concurrency > 1 else ''}"
                before = _runs(process)
                seen = self._in_turn(process, concurrency, self._chosen.seconds)
                self._add_rate("sweep", name, seen, _pictures_a_run(before, _runs(process)))

    def overload(self) -> None:
        seconds = self._chosen.overload
        with self._serving("--queue", str(self._chosen.queue)) as process:
            warm = min(5.0, seconds)
            self._in_turn(process, self._chosen.queue, warm)
            capacity = self._in_turn(process, self._chosen.queue, warm).rate
            alone = float(np.median(self._in_turn(process, 1, warm / 2).of(200)))
            self.add("overload", "pictures a second it can do", capacity, "1/s")

            work = self._work(process, seconds=seconds, rate=self._chosen.times * capacity)
            readings, seen = self._with_memory(process, work)
            recovered = self._seconds_to_recover(process, alone)
        self.add("overload", "pictures a second that came", _sent(seen) / seconds, "1/s")
        self._judge_answers(seen)
        self._judge_refusals(seen)
        self._judge_memory(readings)
        self.add(
            *("overload", "until it is as it was", recovered, "s"),
            *(f"<= {RECOVERED_WITHIN:g}", recovered <= RECOVERED_WITHIN),
        )

    def batching(self) -> None:
        chosen = self._chosen
        many = CONCURRENCIES[-1]
        rates = []
        for batch, concurrency in ((1, 1), (1, many), (chosen.batch, many)):
            with self._serving("--batch", str(batch)) as process:
                self._in_turn(process, concurrency, chosen.seconds / 2)
                before = _runs(process)
                seen = self._in_turn(process, concurrency, chosen.seconds)
                name = f"{concurrency} client{'s' if concurrency > 1 else ''}, batch {batch}"
                runs = _pictures_a_run(before, _runs(process))
                rates.append(self._add_rate("batching", name, seen, runs))
        self.add("batching", "batches beside no batches", rates[2] / rates[1], "x")
        ratio = rates[2] / rates[0]
        should = f">= {chosen.ratio:g}" if chosen.ratio else ""
        is_good = not chosen.ratio or ratio >= chosen.ratio
        self.add("batching", "batches beside one at a time", ratio, "x", should, is_good)

    # ------------------------------------------------------------ judging

    def _judge_answers(self, seen: Seen) -> None:
        accepted = seen.of(200)
        self.add("overload", "pictures a second answered", seen.rate, "1/s")
        self.add("overload", "p50 of the answered", 1e3 * _at(accepted, 50), "ms")
        self.add("overload", "p99 of the answered", 1e3 * _at(accepted, 99), "ms")
        self._add_zero("wrong answers", seen.wrong)
        self._add_zero("broken connections", seen.failures)
        self._add_zero("requests that could not be sent", seen.unsent)
        others = len(seen.statuses) - len(accepted) - len(seen.of(503))
        self._add_zero("other statuses than 200 and 503", others)

    def _judge_refusals(self, seen: Seen) -> None:
        refused = seen.of(503)
        self.add("overload", "refused", len(refused), "", "> 0", len(refused) > 0)
        self._add_zero("refusals without Retry-After", seen.without_retry)
        for percent in (50, 99, 100):
            name = "slowest refusal" if percent == 100 else f"p{percent} of the refused"
            self.add("overload", name, 1e3 * _at(refused, percent), "ms")
        in_time = float((refused <= REFUSED_WITHIN).mean()) * 100 if len(refused) else 0.0
        least = self._chosen.in_time
        self.add(
            *("overload", f"refused within {REFUSED_WITHIN * 1e3:g} ms", in_time, "%"),
            *(f">= {least:g}", in_time >= least),
        )

    def _judge_memory(self, readings: list[tuple[float, float]]) -> None:
        times, used = np.array(readings[int(len(readings) * SETTLED) :]).T
        half = len(used) // 2
        growth = float(used[half:].max() - used[:half].max())
        self.add("overload", "most memory", float(used.max()), "MiB")
        self.add(
            "overload", "slope of memory", float(np.polyfit(times, used, 1)[0]) * 60, "MiB/min"
        )
        self.add(
            *("overload", "most memory, second half less first", growth, "MiB"),
            *(f"<= {NOISE_MIB}", growth <= NOISE_MIB),
        )

    # ------------------------------------------------------------ asking

    def _serving(self, *options: str) -> Any:
        chosen = self._chosen
        return serving(
            *self._subject.options,
            *("--batch", str(chosen.batch), "--device", chosen.device),
            *("--precision", chosen.precision, "--wait-ms", str(chosen.wait_ms)),
            *("--queue", str(2 * CONCURRENCIES[-1])),
            *options,
        )

    def _work(self, process: Process, **more: Any) -> Work:
        subject = self._subject
        # A GPU takes other algorithms for other sizes of runs: what is at the threshold moves.
        share = 1.0 if self._chosen.device == "cpu" else 0.5
        files = process.port, subject.path, subject.bodies, subject.expected
        return Work(*files, share=share, **more)

    def _in_turn(self, process: Process, concurrency: int, seconds: float) -> Seen:
        clients = min(self._chosen.clients, concurrency)
        shares = [concurrency // clients + (n < concurrency % clients) for n in range(clients)]
        works = [self._work(process, seconds=seconds, concurrency=each) for each in shares]
        return Seen.together(self._pool.map(run_clients, works, chunksize=1))

    def _with_memory(self, process: Process, work: Work) -> tuple[list[tuple[float, float]], Seen]:
        """The server's memory meanwhile, as (seconds, MiB)."""
        clients = self._chosen.clients
        assert work.rate
        shares = [replace(work, rate=work.rate / clients)] * clients
        running = self._pool.map_async(run_clients, shares, chunksize=1)
        start = time.perf_counter()
        readings = []
        while not running.ready():
            readings.append((time.perf_counter() - start, process.memory_mib()))
            running.wait(0.25)
        return readings, Seen.together(running.get())

    def _seconds_to_recover(self, process: Process, alone: float) -> float:
        """Until a picture is answered about as soon as if it came alone."""
        start = time.perf_counter()
        while time.perf_counter() - start < 30:
            before = time.perf_counter()
            seen = run_clients(self._work(process, seconds=0.0001))
            if seen.statuses == [200] and time.perf_counter() - before < 3 * alone + 0.05:
                break
        return time.perf_counter() - start

    # ------------------------------------------------------------ rows

    def _add_rate(self, part: str, name: str, seen: Seen, pictures_a_run: float) -> float:
        answered = seen.of(200)
        is_good = len(answered) == _sent(seen) and not seen.wrong
        self.add(part, f"{name}: pictures a second", seen.rate, "1/s", "all right", is_good)
        self.add(part, f"{name}: p50", 1e3 * _at(answered, 50), "ms")
        self.add(part, f"{name}: p99", 1e3 * _at(answered, 99), "ms")
        self.add(part, f"{name}: pictures in a run", pictures_a_run, "")
        self.add(part, f"{name}: busiest client process", 100 * seen.busy, "%")
        return seen.rate

    def _add_zero(self, what: str, value: int) -> None:
        self.add("overload", what, value, "", "0", value == 0)


def _runs(process: Process) -> tuple[float, float]:
    return (
        process.metric("engine_batch_pictures_sum"),
        process.metric("engine_batch_pictures_count"),
    )


def _pictures_a_run(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def _sent(seen: Seen) -> int:
    return len(seen.statuses) + seen.failures + seen.unsent


def _at(seconds: np.ndarray, percent: float) -> float:
    return float(np.percentile(seconds, percent)) if len(seconds) else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts: dict[str, Callable[[Load], None]] = {
        "sweep": Load.sweep,
        "overload": Load.overload,
        "batching": Load.batching,
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
    parser.add_argument("--queue", type=int, default=32, help="of the overload")
    parser.add_argument("--seconds", type=float, help="of each load of the sweep (10)")
    parser.add_argument("--overload", type=float, help="seconds of the overload (300)")
    parser.add_argument("--times", type=float, default=2.0, help="what it can do, in an overload")
    parser.add_argument("--in-time", type=float, default=100.0, help="%% refused in time, at least")
    parser.add_argument("--ratio", type=float, help="batches beside one at a time, at least")
    clients = max(1, thread_count() // PROCESSORS_A_CLIENT)
    parser.add_argument(
        *("--clients",), type=int, default=clients, help=f"processes (here {clients})"
    )
    parser.add_argument("--size", type=_size, default=(640, 480), metavar="WxH")
    chosen = parser.parse_args()
    chosen.seconds = chosen.seconds or (2.0 if chosen.quick else 10.0)
    chosen.overload = chosen.overload or (10.0 if chosen.quick else 300.0)
    for name in chosen.parts:
        if name not in parts:
            parser.error(f"{name}: expected one of {', '.join(parts)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(chosen.clients) as pool:
        load = Load(subject_of(chosen, Path(folder)), pool, chosen)
        for name in chosen.parts or ("sweep", "overload"):
            with suppress(KeyboardInterrupt):
                parts[name](load)
    if chosen.json:
        about = {"model": load._subject.name, "device": chosen.device, "batch": chosen.batch}
        chosen.json.write_text(json.dumps({**about, "rows": load.as_dicts()}, indent=1) + "\n")
    return int(not load.are_good)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


if __name__ == "__main__":
    sys.exit(main())
