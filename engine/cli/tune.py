"""Choose the fastest algorithms of a network on a GPU ahead of its first run: tune NET.

Without it, that happens in the background while the network already runs. The choices are kept in
the cache folder, and can be copied to another machine with the same GPU:

engine tune yolov4-tiny --batch 1,8 --precision float16 --export tuned.json
engine tune --import tuned.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.cli import _model, _network, _output_files
from engine.cli._stderr import print_stderr
from engine.cli.benchmark import batches
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.backends.cuda.device import CudaDevice

_MOST_BYTES = 64 << 20  # maximum size of a file of choices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="NET", help="a CFG or a name, and WEIGHTS")
    _network.add_arguments(parser)
    running = parser.add_argument_group("running")
    running.add_argument("--device", default="cuda:0", help="cuda:0, cuda:1 … (cuda:0)")
    running.add_argument("--precision", default="float32", help=_model.PRECISIONS)
    running.add_argument("--scales", metavar="FILE", help=_model.SCALES)
    running.add_argument(
        "--batch", type=batches, default=(1,), metavar="N,N", help="batch sizes to tune for (1)"
    )
    running.add_argument(
        "--seconds", type=int, default=60, metavar="S", help="maximum for each batch size (60)"
    )
    carrying = parser.add_argument_group("carrying choices to another machine")
    carrying.add_argument("--export", metavar="FILE", help="write all choices for this GPU")
    carrying.add_argument(
        "--import", dest="given", metavar="FILE", help="read a file that --export wrote"
    )
    carrying.add_argument("--overwrite", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int:
    _network.take_network(arguments)
    if arguments.seconds < 1:
        raise InputError(f"--seconds: expected at least 1, got {arguments.seconds}")
    reserved = _output_files.ReservedPaths([*_model.files(arguments), arguments.given])
    if arguments.export:
        path, overwrite = arguments.export, arguments.overwrite
        _output_files.check_output("--export", path, reserved, overwrite=overwrite)
    given = _read(arguments.given) if arguments.given else {}

    from engine.backends import open_chosen
    from engine.backends.cuda.device import CudaDevice

    device = open_chosen(arguments.device)
    try:
        if not isinstance(device, CudaDevice):
            hint = "Try: --device cuda:0"
            raise InputError(f"{device.name}: expected one GPU, which has autotuning. {hint}")
        if arguments.given:
            count = device.take_choices(given, str(arguments.given))
            print(f"{arguments.given}: {count} convolutions")
        if not arguments.given or arguments.cfg or arguments.model:
            _tune(device, arguments)
        if arguments.export:
            _write(device.known_choices(), arguments)
    finally:
        device.close()
    return 0


def _tune(device: CudaDevice, arguments: argparse.Namespace) -> None:
    from engine.passes import optimise
    from engine.passes.quantise import quantise

    graph, plan, is_trained = _network.read_or_make(arguments)
    ready = optimise(plan, device.passes)
    ranges = _network.ranges(arguments, graph, plan, is_trained=is_trained)
    if ranges is not None:
        ready = quantise(ready, ranges)
    for batch in arguments.batch:
        name = f"{graph.file}, {arguments.precision}, batch {batch}"
        options: dict[str, Any] = {"batch": batch, "precision": arguments.precision}
        before = device.run_time(ready, **options)
        report = partial(_report, name)
        device.tune(ready, **options, seconds=arguments.seconds, report=report)
        after = device.run_time(ready, **options)
        print(f"{name}: {after:.3f} ms, {before:.3f} before")


def _report(name: str, text: str) -> None:
    print_stderr(f"{name}: {text}")


def _read(path: str) -> Any:
    from engine.files.regular import read_bytes

    content = read_bytes(path, InputError, limit=_MOST_BYTES)
    try:
        return json.loads(content)
    except (RecursionError, ValueError):
        raise InputError(f"--import {path}: expected what --export wrote") from None


def _write(choices: dict[str, Any], arguments: argparse.Namespace) -> None:
    from engine.files.atomic import write_new

    text = json.dumps(choices, indent=1, sort_keys=True) + "\n"
    content, hint = text.encode(), _output_files.HINT
    write_new(arguments.export, content, overwrite=arguments.overwrite, hint=hint)
    print(f"{arguments.export}: {len(choices['choices'])} convolutions of {choices['card']}")
