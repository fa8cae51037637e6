"""Run one picture in two ways and find the first layer whose output differs.

A way is DEVICE[/PRECISION][/no-passes]: cpu, cuda:0, cuda/float16, cpu/no-passes, cpu/int8.
Passes make layers int8, so int8 is refused together with no-passes.
The exit status is 0 if the ways agree, 1 if a layer differs, and 2 or more after an error.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.cli import FAILED, _model, _network
from engine.cli._table import align
from engine.errors import EngineError, ImageError, InputError

if TYPE_CHECKING:
    from engine.cli._table import Cell
    from engine.compare import Difference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="IMAGE", help="a picture, CFG and WEIGHTS")
    _network.add_arguments(parser)
    parser.add_argument("--first", default="cpu/no-passes", metavar="WAY", help="(cpu/no-passes)")
    parser.add_argument("--second", default="auto", metavar="WAY", help="(auto: a GPU, else cpu)")
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="X",
        help="error allowed, relative to a layer's norm (1e-4; float16: 2e-2, int8: 0.3)",
    )
    parser.add_argument("--scales", metavar="FILE", help=_model.SCALES)
    parser.add_argument("--all", action="store_true", help="print a line for every layer")


def run(arguments: argparse.Namespace) -> int:
    try:
        return _run(arguments)
    except EngineError as error:
        if error.exit_code != FAILED:
            raise
        raise InputError(str(error)) from error  # status 1 is reserved for a differing layer


def _run(arguments: argparse.Namespace) -> int:
    from engine import compare
    from engine.backends.host_processing import scaled
    from engine.files.atomic import unwritable
    from engine.inputs import Intake

    rest = _network.take_files(arguments, arguments.inputs)
    if len(rest) != 1:
        raise InputError(f"expected one IMAGE, got {len(rest)}")
    ways = [compare.Way.of(each).here() for each in (arguments.first, arguments.second)]
    tolerance = arguments.tolerance
    if tolerance is None:
        tolerance = max(compare.TOLERANCES[way.precision] for way in ways)
    graph, plan, is_trained = _network.read_or_make(arguments)
    has_int8 = any(way.precision == "int8" for way in ways)
    arguments.precision = "int8" if has_int8 else ""
    ranges = _network.ranges(arguments, graph, plan, is_trained=is_trained)
    if not graph.net.channels:
        raise InputError(f"{graph.file}: expected a network for pictures")
    batch = Intake.of(graph).prepare(rest, bgr=False)
    (picture,) = batch.pictures
    if isinstance(picture, ImageError):
        raise picture
    differences = list(compare.compare(graph, plan, scaled(batch.placed), ways, ranges))
    lines = align([_HEADINGS, *map(_row, differences)]) if arguments.all else []
    judgement, status = _judge(differences, tolerance, " and ".join(map(str, ways)))
    try:
        print(*lines, judgement, sep="\n", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable("-", error) from None
    return status


_HEADINGS = ("layer", "section", "output", "difference", "first", "second", "at")


def _row(each: Difference) -> tuple[Cell, ...]:
    error, first, second = (f"{value:.3g}" for value in (each.error, each.first, each.second))
    return each.layer, each.kind, each.shape, error, first, second, _place(each)


def _place(each: Difference) -> str:
    _, channel, y, x = each.place
    return f"{channel},{y},{x}"


def _judge(differences: list[Difference], tolerance: float, ways: str) -> tuple[str, int]:
    worst = max(differences, key=lambda each: each.error)
    first = next((each for each in differences if not each.error <= tolerance), None)
    if first is None:
        return (
            f"{ways} agree in all {len(differences)} layers: at most {worst.error:.2e} of a "
            f"layer's norm, in layer {worst.layer} [{worst.kind}]"
        ), 0
    return (
        f"{ways} differ from layer {first.layer} [{first.kind}] on: {first.error:.2e} of its norm, "
        f"more than {tolerance:g}; at channel, row, column {_place(first)} "
        f"{first.first:.6g} against {first.second:.6g}"
    ), FAILED


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, got {text!r}")
    return number
