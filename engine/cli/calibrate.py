"""Make the file that --precision int8 needs: calibrate NET PICTURES.

It holds how large the outputs of each layer are, and which convolutions stay float because int8
would change the results too much. A few hundred typical pictures are best; they need no labels.

engine calibrate my.cfg my.weights photos/ -o my.scales
engine calibrate my.cfg my.weights photos/ --check labelled/   # average precision, too
"""

from __future__ import annotations

import argparse
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from engine.arguments import parse_integer
from engine.cli import FAILED, _model, _network, _output_files
from engine.cli._progress import StatusLine
from engine.cli._stderr import print_stderr
from engine.cli._table import align
from engine.errors import InputError
from engine.files.naming import shown
from engine.vision.extensions import is_picture

if TYPE_CHECKING:
    from engine.calibrate.choose import Chosen
    from engine.scales import Scales

_MOST_PICTURES = 1_000_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="NET PICTURE",
        help="a CFG and WEIGHTS or a name, then pictures, folders, .txt lists or videos",
    )
    _network.add_arguments(parser)
    running = parser.add_argument_group("running")
    running.add_argument("--device", default="auto", help="auto, cpu or cuda:0 (auto)")
    running.add_argument("--threads", type=int, metavar="N", help="threads of the CPU backend")
    choosing = parser.add_argument_group("choosing")
    choosing.add_argument(
        "--pictures", type=_count, default=300, metavar="N", help="the first N pictures (300)"
    )
    choosing.add_argument("--recursive", action="store_true", help="look into subfolders, too")
    choosing.add_argument(
        "--measure", type=_count, default=8, metavar="N", help="measure errors on the first N (8)"
    )
    choosing.add_argument(
        "--target",
        type=_fraction,
        default=0.1,
        metavar="X",
        help="relative error of the outputs, above which layers stay float (0.1)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="FILE", help="the scales (next to the weights: NAME.scales)"
    )
    output.add_argument(
        "--check",
        metavar="LIST|DIR|JSON",
        help="print the average precision on these labelled pictures, in float32 and in int8",
    )
    output.add_argument("--names", metavar="FILE", help="class names, for --check")
    output.add_argument("--overwrite", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int:
    from engine import scales as scales_file
    from engine.backends import open_chosen
    from engine.calibrate.scales import Calibration, calibrate
    from engine.cli.evaluate import require_labels
    from engine.darknet.graph import named_task
    from engine.files.atomic import write_new
    from engine.loading import labels_of

    pictures = _network.take_files(arguments, arguments.inputs, may_be_folders=True)
    if not pictures:
        raise InputError("no picture named: expected some, best a folder of a few hundred")
    if arguments.names and not arguments.check:
        raise InputError("--names: only with --check")
    _model.fill_in(arguments)
    arguments.model = None  # now replaced by its files
    files = _model.network(str(arguments.cfg)), arguments.weights
    path = arguments.output or str(scales_file.path_beside(arguments.weights))
    if is_picture(Path(path).name):
        raise InputError(f"--output {shown(path)}: is the name of a picture. Try NAME.scales")
    if arguments.check and not Path(arguments.check).exists():
        raise InputError(f"--check {shown(arguments.check)}: no such file or folder")
    reserved = _output_files.ReservedPaths([*files, *pictures, arguments.names, arguments.check])
    _output_files.check_output("--output", path, reserved, overwrite=arguments.overwrite)
    digests = scales_file.digests(*files)
    graph, plan = _network.read(arguments)
    if scales_file.digests(*files) != digests:
        raise InputError(f"{shown(files[1])}: it or its .cfg changed while it was read. Try again")
    if arguments.check:
        if graph.task != "detector":
            raise InputError(
                f"--check: only for detectors, got {named_task(graph.task)}: {graph.file}"
            )
        require_labels(arguments.check, labels_of(arguments.names, None, graph, files[0]))
    device = open_chosen(arguments.device, arguments.threads)
    try:
        options = Calibration(
            arguments.pictures, arguments.measure, arguments.target, arguments.recursive
        )
        failures: list[str] = []

        def warn(text: str) -> None:
            failures.append(text)
            line.clear()
            print_stderr(f"Error: {text}")

        line = StatusLine()
        try:
            scales, chosen = calibrate(
                *(graph, plan, files[1], digests, pictures, device, options),
                warn=warn,
                report=line.show,
            )
        finally:
            line.clear()
    finally:
        device.close()
    content, hint = str(scales).encode(), _output_files.HINT
    write_new(path, content, overwrite=arguments.overwrite, hint=hint)
    print(*_lines(scales, chosen), sep="\n")
    count = int(scales.about["pictures"])
    print(f"{shown(path)}: {count} picture{'' if count == 1 else 's'}")
    is_complete = not arguments.check or _check(arguments, path)
    return FAILED if failures or not is_complete else 0


def _lines(scales: Scales, chosen: Chosen) -> list[str]:
    if not chosen.errors:
        return ["no convolution of this network can multiply integers: all stay float"]
    rows = [("layer", "section", "largest", "multiplies", "error alone")]
    for number, each in enumerate(scales.layers):
        if not isnan(each.error):
            row = (str(number), each.kind, f"{each.largest:.4g}", each.way, f"{each.error:.4f}")
            rows.append(row)
    methods = ", ".join(f"{name} {error:.4f}" for name, error in chosen.error_by_method.items())
    lines = [*align(rows), ""]
    lines.append(f"relative error of the outputs with all of these in int8: {methods}")
    if not chosen.gains:
        lines.append("too few multiplications can use integers: float layers are faster")
    count = len(chosen.ranges.floats)
    kept = f"{count} stay{'s' if count == 1 else ''} float" if count else "none stays float"
    return [*lines, f"limits by {chosen.method}, {kept}: error {chosen.error:.4f}"]


def _check(arguments: argparse.Namespace, scales: str) -> bool:
    """Print the average precision in float32 and in int8; return whether all pictures were read."""
    import engine
    from engine.cli.evaluate import average_precisions

    rows = [["precision", "AP", "AP50", "AP75"]]
    failures = 0
    for precision in ("float32", "int8"):
        with engine.load(
            *(arguments.cfg, arguments.weights, arguments.names),
            device=arguments.device,
            threads=arguments.threads,
            size=arguments.size,
            precision=precision,
            scales=scales if precision == "int8" else None,
            threshold=0.005,
        ) as detector:
            is_first = precision == "float32"  # the same pictures fail again
            found, failures = average_precisions(detector, arguments.check, is_quiet=not is_first)
        rows.append([precision, *(_number(found[name]) for name in rows[0][1:])])
    print("", *align(rows), sep="\n")
    return not failures


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _count(text: str) -> int:
    number = parse_integer(text)
    if not number or number > _MOST_PICTURES:
        expected = f"expected a whole number from 1 to {_MOST_PICTURES}"
        raise argparse.ArgumentTypeError(f"{expected}, got {text!r}")
    return number


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return number
