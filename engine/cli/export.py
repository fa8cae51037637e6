"""Export a network for other programs: export onnx CFG WEIGHTS -o FILE.

The input is a batch of float images (batch, channels, height, width), RGB from 0 to 1. The outputs
are those of the detection layers, or with --decode boxes.
"""

from __future__ import annotations

import argparse

from engine.cli import _model, _network, _output_files
from engine.errors import InputError, suggest

FORMATS = ("onnx",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", metavar="FORMAT", help="onnx")
    parser.add_argument("inputs", nargs="*", metavar="CFG WEIGHTS", help="the network")
    _network.add_arguments(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--decode", action="store_true", help="output rows x, y, w, h, objectness, scores"
    )
    model.add_argument(
        "--opset", type=int, metavar="N", help="ONNX opset (the lowest possible: 13; mish: 18)"
    )
    model.add_argument("--batch", type=int, metavar="N", help="fix the batch size (any)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the .onnx file")
    parser.add_argument("--overwrite", action="store_true", help="replace the file")


def run(arguments: argparse.Namespace) -> int:
    if arguments.format not in FORMATS:
        hint = suggest(arguments.format, FORMATS)
        raise InputError(f"format: expected onnx, got {arguments.format!r}.{hint}")
    if arguments.batch is not None and arguments.batch < 1:
        raise InputError(f"--batch: expected 1 or more, got {arguments.batch}")
    _network.refuse_rest(_network.take_files(arguments, arguments.inputs))
    if not arguments.output:
        raise InputError("no output named: expected -o FILE")
    reserved = _output_files.ReservedPaths(_model.files(arguments))
    _output_files.check_output("-o", arguments.output, reserved, overwrite=arguments.overwrite)
    _output_files.check_ending("-o", arguments.output, ".onnx")
    return _write(arguments)


def _write(arguments: argparse.Namespace) -> int:
    from engine.export import onnx
    from engine.files.atomic import write_new
    from engine.passes import optimise

    graph, plan = _network.read(arguments)
    content = onnx.serialize(
        *(optimise(plan, onnx.PASSES), graph.titles),
        opset=arguments.opset,
        batch=arguments.batch,
        decode=arguments.decode,
    )
    write_new(arguments.output, content, overwrite=arguments.overwrite, hint=_output_files.HINT)
    print(f"{arguments.output}: {len(content):,} bytes")
    return 0
