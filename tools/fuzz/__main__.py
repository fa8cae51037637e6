"""Fuzz the readers of untrusted input, one harness after another, and count inputs.

python -m tools.fuzz FOLDER --hours 4            needs: pip install atheris
python -m tools.fuzz FOLDER --tally              totals of all runs
python -m tools.fuzz FOLDER --replay             check every finding again, without instrumentation

FOLDER keeps the corpus, the findings and tally.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from tools.fuzz.harnesses import NAMES, check_input, harness
from tools.fuzz.oracle import silence

_COUNT = re.compile(r"number_of_executed_units: (\d+)")


def fuzz(folder: Path, names: list[str], *, seconds: int, turn: int) -> None:
    end = time.monotonic() + seconds
    while True:
        for name in names:
            left = int(end - time.monotonic())
            if left < 5:
                return
            _run_harness(folder, name, min(turn, left))


def _run_harness(folder: Path, name: str, seconds: int) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzz.child", name, str(folder), str(seconds)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = _COUNT.findall(done.stderr)
    row = {"harness": name, "inputs": int(counts[-1]) if counts else 0, "cpu": round(used, 1)}
    log = folder / f"last-{name}.txt"
    log.write_text(done.stderr[-20_000:])
    if not counts:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"{name}: ran no input: {reason}. See {log}", flush=True)
    if done.returncode:  # libFuzzer saved the input that crashed it among the findings
        row["status"] = done.returncode
    with (folder / "tally.jsonl").open("a") as tally:
        print(json.dumps(row), file=tally)


def tally(folder: Path) -> None:
    inputs: dict[str, int] = defaultdict(int)
    hours: dict[str, float] = defaultdict(float)
    for line in (folder / "tally.jsonl").read_text().splitlines():
        row = json.loads(line)
        inputs[row["harness"]] += row["inputs"]
        hours[row["harness"]] += row["cpu"] / 3600
    for name in sorted(inputs):
        print(f"{name:16s} {inputs[name]:12,d} inputs {hours[name]:8.2f} CPU-hours")
    print(f"{'all':16s} {sum(inputs.values()):12,d} inputs {sum(hours.values()):8.2f} CPU-hours")


def replay(folder: Path) -> int:
    silence()
    failing = 0
    for path in sorted((folder / "findings").glob("*/*")):
        if path.suffix == ".why":
            continue
        found = check_input(harness(path.parent.name), path.read_bytes())
        failing += found is not None
        print(f"{path}: {found.key if found else 'ok'}", flush=True)
        if found:
            print(found.text)
    return failing


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("harnesses", nargs="*", metavar="HARNESS", help=", ".join(NAMES))
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--turn", type=int, default=300, help="seconds per harness and round")
    parser.add_argument("--tally", action="store_true")
    parser.add_argument("--replay", action="store_true")
    arguments = parser.parse_intermixed_args()  # harnesses may follow --hours
    if arguments.tally:
        tally(arguments.folder)
        return 0
    if arguments.replay:
        return int(replay(arguments.folder) > 0)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = arguments.harnesses or list(NAMES)
    fuzz(arguments.folder, names, seconds=int(arguments.hours * 3600), turn=arguments.turn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
