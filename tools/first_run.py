"""Time `detect` from the shell prompt to its boxes, with an empty cache and then with a full one.

Also measure how long the background search takes, how long calls wait meanwhile, and how the
result compares with a network that was tuned before its first run:

python tools/first_run.py --json tools/results/FILE.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY), str(_REPOSITORY / "tools")]

import numpy as np  # noqa: E402
import random_model  # noqa: E402

import engine  # noqa: E402

_PICTURE = str(_REPOSITORY / "docs/parcel.jpg")
_CORES = (None, 2)  # all, and the first two
_RUNS = 40
_TUNED_SECONDS = "25"
_LONGEST = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write all rows")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cfg = _REPOSITORY / "cfg/yolov4-tiny.cfg"
        tiny = [str(cfg), str(random_model.save(cfg, work)), "--threshold", "0.99"]
        rows = []
        for name, network, precision in (
            ("codes", [], "float32"),
            ("codes", [], "float16"),
            ("yolov4-tiny", tiny, "float16"),
        ):
            command = [*network, _PICTURE, "--device", "cuda:0", "--precision", precision]
            for cores in _CORES:
                rows += [{"network": name, "precision": precision, **_starts(command, cores, work)}]
                print(rows[-1], flush=True)
        files = {"cfg": tiny[0], "weights": tiny[1], "threshold": 0.99}
        for name, options, batch in (("codes", {}, 1), ("yolov4-tiny", files, 1)):
            precision = "float32" if name == "codes" else "float16"
            found = _background(options, precision, batch, work)
            rows += [{"network": name, "precision": precision, "batch": batch, **found}]
            print(rows[-1], flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1))
    return 0


def _starts(command: Sequence[str], cores: int | None, work: Path) -> dict[str, Any]:
    """Return the seconds of a process with an empty cache and of the next one."""
    cache = work / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, "ENGINE_CACHE": str(cache), "PYTHONPATH": str(_REPOSITORY)}
    environment["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    # NVIDIA's compilers have caches of their own.
    environment |= {"CUDA_CACHE_DISABLE": "1", "HOME": str(work / "home")}
    shutil.rmtree(work / "home", ignore_errors=True)
    pinned = [] if cores is None else ["taskset", "-c", ",".join(map(str, range(cores)))]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(
            [*pinned, sys.executable, "-m", "engine", "detect", *command],
            env=environment,
            check=True,
            capture_output=True,
        )
        seconds.append(round(time.perf_counter() - start, 2))
    return {"cores": cores or os.cpu_count(), "empty cache": seconds[0], "next": seconds[1]}


def _background(options: Any, precision: str, batch: int, work: Path) -> dict[str, Any]:
    """Return how long the search took, what calls waited for, and what was gained."""
    row: dict[str, Any] = {}
    shutil.rmtree(work / "cache", ignore_errors=True)
    os.environ["ENGINE_CACHE"] = str(work / "cache")
    os.environ.pop("ENGINE_TUNE", None)
    start = time.perf_counter()
    with engine.load(**options, device="cuda:0", precision=precision, batch=batch) as detector:
        width, height = detector.size
        pictures = np.random.default_rng(0).integers(0, 255, (batch, height, width, 3), np.uint8)
        given = list(pictures) if batch > 1 else pictures[0]
        detector(given)
        row["first result, seconds"] = round(time.perf_counter() - start, 2)
        images = np.random.default_rng(1).random((batch, 3, height, width), np.float32)
        program: Any = detector._program
        row["forward before, ms"] = _forward(program, images)
        before = program.forward(images)
        waits = []
        while not program.is_settled.is_set() and time.perf_counter() - start < _LONGEST:
            called = time.perf_counter()
            detector(given)
            waits.append(1e3 * (time.perf_counter() - called))
            time.sleep(0.002)
        row["settled after, seconds"] = round(time.perf_counter() - start, 1)
        row["longest call meanwhile, ms"] = round(max(waits, default=0.0), 1)
        row["median call meanwhile, ms"] = round(float(np.median(waits)), 3)
        after = program.forward(images)
        row["difference"] = max(
            float(np.linalg.norm(a - b) / np.linalg.norm(a))
            for a, b in zip(before, after, strict=True)
        )
        row["forward after, ms"] = _forward(program, images)
    shutil.rmtree(work / "cache", ignore_errors=True)
    os.environ["ENGINE_TUNE"] = _TUNED_SECONDS
    with engine.load(**options, device="cuda:0", precision=precision, batch=batch) as detector:
        row["forward tuned before, ms"] = _forward(detector._program, images)
    os.environ.pop("ENGINE_TUNE")
    row["after / tuned"] = round(row["forward after, ms"] / row["forward tuned before, ms"], 3)
    return row


def _forward(program: Any, images: Any) -> float:
    return round(float(np.median(program.measure(images, repeats=_RUNS))), 4)


if __name__ == "__main__":
    sys.exit(main())
