"""Attack `python -m engine serve` over loopback while honest clients use it.

    python tools/attack_serve.py [--seconds 600] [--memory 256] [--json FILE]

50 connections send decompression bombs that wait for memory, files whose headers are costly to
read, pictures that take much memory, bodies of 10 MB with `Connection: close`, or nothing. 10 other
clients send ordinary JPEGs of 640 x 480, whose answers are compared with the result of the detector
alone. It prints how many honest requests were answered, their p50 and p99 with and without the
attack, the resident memory of the server with its processes, and the seconds from SIGTERM, in the
middle of an attack, to the end of the server. The exit status is 1 if a figure misses its target.
It reads /proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import tempfile
import time
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from tools.figures import Figures
from tools.load import hostile_pictures
from tools.load.attackers import (
    BOMB,
    COSTLY,
    HEAVY,
    KINDS,
    Attack,
    run_attack,
)
from tools.load.clients import ClientLoad, Responses, run_clients
from tools.load.server import ServerProcess
from tools.load.workload import Workload, make_workload

MAX_SLOWDOWN = 5.0  # of the p99 of honest requests
SPARE_MIB = 64  # beyond --memory and an idle server: docs/serve.md
MAX_EXIT_SECONDS = 1.0  # after the drain
DRAIN_SECONDS = 5.0
_READING_SECONDS = 0.2


class AttackTest(Figures):
    def __init__(self, workload: Workload, pool: Pool, options: argparse.Namespace) -> None:
        super().__init__()
        self._workload = workload
        self._pool = pool
        self._options = options

    def run(self) -> None:
        options = self._options
        process = ServerProcess(
            [
                *self._workload.options,
                *("--device", options.device, "--memory", str(options.memory)),
                *("--drain-seconds", str(DRAIN_SECONDS)),
            ]
        )
        try:
            self._honest(process, 2.0)  # warm-up
            idle = process.tree_memory_mib()
            before = self._honest(process, options.seconds / 4)
            attack = self._attack(process, options.seconds + DRAIN_SECONDS)
            time.sleep(min(2.0, options.seconds / 10))  # until all attackers are at work
            during, most = self._watched(process, self._load(process, options.seconds))
            seconds, status = process.timed_stop()
        except BaseException:
            process.stop()
            raise
        self._add_clients(before, during)
        limit = idle + options.memory + SPARE_MIB
        self.add("memory", "resident, idle, with its processes", idle, "MiB")
        self.add("memory", "resident, maximum", most, "MiB", f"<= {limit:.0f}", most <= limit)
        limit = DRAIN_SECONDS + MAX_EXIT_SECONDS
        is_good = seconds <= limit and status in (0, 130)
        self.add("exit", "from SIGTERM to the end", seconds, "s", f"<= {limit:g}", is_good)
        counts = attack.get(60)
        for kind in KINDS:
            found = counts.of(kind)
            words = ", ".join(f"{status or 'broken'}: {n}" for status, n in found.items())
            self.add("attack", f"{kind} ({words})", sum(found.values()), "times")

    def _add_clients(self, before: Responses, during: Responses) -> None:
        p99 = []
        for name, responses in (("without attack", before), ("under attack", during)):
            answered = responses.seconds_of(200)
            asked = len(responses.statuses) + responses.failures + responses.unsent
            is_good = len(answered) == asked and not responses.wrong
            what = f"answered of {asked}, {name}"
            self.add("honest", what, len(answered), "", "all, correctly", is_good)
            for percent in (50, 99, 100):
                value = float(np.percentile(answered, percent)) * 1e3 if len(answered) else np.nan
                what = "slowest" if percent == 100 else f"p{percent}"
                if percent == 99:
                    p99.append(value)
                self.add("honest", f"{what}, {name}", value, "ms")
        slower = p99[1] / p99[0]
        is_good = slower <= MAX_SLOWDOWN
        self.add("honest", "p99 under attack", slower, "times", f"<= {MAX_SLOWDOWN:g}", is_good)

    # ------------------------------------------------------------ requests

    def _load(self, process: ServerProcess, seconds: float) -> ClientLoad:
        workload, options = self._workload, self._options
        files = process.port, workload.path, workload.bodies, workload.expected
        return ClientLoad(*files, seconds=seconds, concurrency=options.clients, pause=options.pause)

    def _honest(self, process: ServerProcess, seconds: float) -> Responses:
        return self._pool.apply(run_clients, (self._load(process, seconds),))

    def _attack(self, process: ServerProcess, seconds: float) -> AsyncResult[Any]:
        # A bomb needs most of the memory for pictures, which is less than two thirds of all.
        pixels = int(self._options.memory * 2**20 * 0.6 / 12)
        makers = {
            BOMB: hostile_pictures.bombs(pixels),
            COSTLY: hostile_pictures.COSTLY,
            HEAVY: hostile_pictures.memory_heavy(pixels),
        }
        bodies = {kind: [make() for make in made.values()] for kind, made in makers.items()}
        attack = Attack(process.port, seconds, self._options.attackers, bodies)
        return self._pool.apply_async(run_attack, (attack,))

    def _watched(self, process: ServerProcess, load: ClientLoad) -> tuple[Responses, float]:
        """Run honest clients; return their responses and the most memory of the server in MiB."""
        running = self._pool.apply_async(run_clients, (load,))
        most = 0.0
        while not running.ready():
            most = max(most, process.tree_memory_mib())
            running.wait(_READING_SECONDS)
        return running.get(), most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of the attack (600)")
    parser.add_argument("--attackers", type=int, default=50, help="connections (50)")
    parser.add_argument("--clients", type=int, default=10, help="honest clients (10)")
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds between their requests (1)"
    )
    parser.add_argument("--memory", type=int, default=256, help="of the server, in MiB (256)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    for name in ("--cfg", "--weights", "--names"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    options.random, options.precision, options.size = False, "float32", (640, 480)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the server
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(2) as pool:
        test = AttackTest(make_workload(options, Path(folder)), pool, options)
        test.run()
    if options.json:
        options.json.write_text(json.dumps({"rows": test.as_dicts()}, indent=1) + "\n")
    return int(not test.are_good)


if __name__ == "__main__":
    sys.exit(main())
