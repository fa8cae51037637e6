"""Time convolutions in float16, int8 and float8 (e4m3), each with every kernel that can run it.

python tools/measure_int8.py --json tools/results/FILE.json

Every choice is timed as the autotuner does; the fastest then runs for a while, in which nvidia-smi
reads power and clock. Float8 exists for this comparison only: the int8 kernels with another
instruction, whose sums are floats.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import inf, prod
from pathlib import Path
from typing import Any
from unittest import mock

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY)]

from engine.backends.cuda import conv  # noqa: E402
from engine.backends.cuda.device import CudaDevice  # noqa: E402
from engine.backends.cuda.driver import compiler  # noqa: E402
from engine.backends.cuda.kernels import wgmma  # noqa: E402
from engine.backends.cuda.ops.target import Target  # noqa: E402
from engine.backends.cuda.tune import measure  # noqa: E402
from engine.plan.ops import Activate, Add, Constant, Conv2d, Tensor  # noqa: E402
from engine.plan.shapes import Shape  # noqa: E402
from tools.bench_cuda import bus_of  # noqa: E402

_KINDS = ("float16", "int8", "float8")
_FLOAT8 = wgmma.Kind("f32.e4m3.e4m3", 32)
# channels, side, filters, size, stride, residual
_LAYERS = {
    "yolov3 3x3 256 to 512 at 26x26": (256, 26, 512, 3, 1, False),
    "yolov3 1x1 512 to 256 at 26x26": (512, 26, 256, 1, 1, False),
    "yolov3 3x3 128 to 256 at 52x52 + residual": (128, 52, 256, 3, 1, True),
    "yolov3 3x3 512 to 1024 at 13x13": (512, 13, 1024, 3, 1, False),
    "yolov3 1x1 256 to 128 at 52x52": (256, 52, 128, 1, 1, False),
    "resnet 3x3 64 to 64 at 64x64": (64, 64, 64, 3, 1, False),
    "resnet 1x1 64 to 256 at 64x64 + residual": (64, 64, 256, 1, 1, True),
    "yolov3 3x3 64 to 128 at 208x208, stride 2": (64, 208, 128, 3, 2, False),
}
_SUSTAINED = 0.6  # seconds


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[64])
    parser.add_argument("--layers", type=int, help="so many of them")
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=_KINDS)
    parser.add_argument("--json", type=Path, help="write all rows")
    parser.add_argument("--kind", choices=_KINDS, help=argparse.SUPPRESS)  # in its own process
    options = parser.parse_args(words)
    if options.kind:
        _measure_kind(options)
        return 0
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        with subprocess.Popen(
            _command(kind, options), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                rows.append(json.loads(line))
                _show(rows[-1], rows)
        if status := process.returncode:  # its last words are on stderr
            print(f"Error: {kind}: its process ended with status {status}", file=sys.stderr)
            return status if status > 0 else 1
    if options.json:
        options.json.write_text(json.dumps({"card": _card(), "rows": rows}, indent=1) + "\n")
    return 0


def _command(kind: str, options: argparse.Namespace) -> list[str]:
    """Return the command of a process that measures one kind."""
    command = [sys.executable, __file__, "--kind", kind, "--batch", *map(str, options.batch)]
    return command + (["--layers", str(options.layers)] if options.layers else [])


def _show(row: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    same = ("layer", "batch")
    base = next(each for each in rows if [each[key] for key in same] == [row[key] for key in same])
    print(
        f"{row['kind']:8} {row['batch']:3} {row['layer']:42} {row['us']:8.1f} us "
        f"{row['us'] / base['us']:5.2f}  {row['tera']:6.0f} T/s  {row['best']:40} "
        f"{row['sustained_us']:8.1f} us {row['watts']:4.0f} W {row['mhz']:5.0f} MHz",
        flush=True,
    )


def _measure_kind(options: argparse.Namespace) -> None:
    changed = {4: _FLOAT8} if options.kind == "float8" else {}
    with mock.patch.dict(wgmma.MODES, changed), closing(CudaDevice()) as card:
        for batch in options.batch:
            for name, layer in [*_LAYERS.items()][: options.layers]:
                op = _convolution(*layer)
                row = {"kind": options.kind, "layer": name, "batch": batch}
                print(json.dumps(row | _row(card, op, options.kind, batch)), flush=True)


def _row(card: CudaDevice, op: Conv2d, kind: str, batch: int) -> dict[str, Any]:
    scales = {} if kind == "float16" else dict.fromkeys((*op.reads, op.out), 0.05)
    whole = Target(batch, "float16", card.card.capability, card.card.multiprocessors, scales=scales)
    target = whole.of(op)
    choices = [
        each
        for each in measure.shortlist(target, op)
        if not each.unfused and "sm90" in each.algorithm
    ]
    wanted = {tile for each in choices if (tile := conv.get(each).tile(target, op))}
    with ThreadPoolExecutor() as pool:
        facts = target.capability, target.precision
        list(pool.map(lambda tile: compiler.source(tile, *facts).image(), wanted))
    times = {str(each): _time(card, target, op, each) for each in choices}
    best = min(times, key=times.__getitem__)
    milliseconds = times[best]
    repeats = max(1, int(_SUSTAINED * 1e3 / (milliseconds * measure.COPIES)))
    readings: list[list[float]] = []
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(done, readings))
    watch.start()
    with mock.patch.object(measure, "REPEATS", repeats):
        sustained = _time(card, target, op, conv.Choice.parse(best))
    done.set()
    watch.join()
    loaded = sorted(readings)[-max(1, len(readings) // 2) :]  # the rest are from before or after
    watts, megahertz = (sum(column) / len(loaded) for column in zip(*loaded, strict=True))
    operations = 2 * batch * op.out.shape.size * prod(op.weight.shape[1:])
    return {
        "us": milliseconds * 1e3,
        "tera": operations / milliseconds / 1e9,
        "best": best,
        "sustained_us": sustained * 1e3,
        "watts": watts,
        "mhz": megahertz,
        "all_us": {name: each * 1e3 for name, each in sorted(times.items(), key=lambda x: x[1])},
    }


def _time(card: CudaDevice, target: Target, op: Conv2d, choice: conv.Choice) -> float:
    context = card._context
    return context.run(lambda: measure.measure(context, target, op, choice, inf))


def _watch(done: threading.Event, readings: list[list[float]]) -> None:
    while not done.is_set():
        readings.append([float(each) for each in _query("power.draw.instant,clocks.sm")])
        time.sleep(0.05)


def _query(fields: str) -> list[str]:
    command = [
        "nvidia-smi",
        "-i",
        bus_of("cuda:0"),
        f"--query-gpu={fields}",
        "--format=csv,noheader,nounits",
    ]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.split(",")


def _card() -> str:
    return ", ".join(each.strip() for each in _query("name,driver_version"))


def _convolution(
    channels: int, side: int, filters: int, size: int, stride: int, has_residual: bool
) -> Conv2d:
    out_side = (side - 1) // stride + 1
    src, sums, activated, out, more = (
        Tensor(number, Shape(filters if number else channels, *sides))
        for number, sides in enumerate([(side, side), *[(out_side, out_side)] * 4])
    )
    op = Conv2d(
        sums,
        src,
        Constant("weight", (filters, channels, size, size)),
        Constant("bias", (filters,)),
        stride=(stride, stride),
        padding=(size // 2,) * 4,
    ).then(Activate(activated, sums, "leaky"))
    return op.then(Add(out, (activated, more))) if has_residual else op


if __name__ == "__main__":
    sys.exit(main())
