"""Write a network for other programs: export onnx CFG WEIGHTS -o FILE.

The model takes any batch of float images, (batch, channels, height, width) in RGB from 0 to 1,
and puts out what the detection layers do; with --decode, boxes.
"""

from __future__ import annotations

import argparse

from engine.cli import _model, _network, _targets
from engine.errors import InputError, suggest

FORMATS = ("onnx",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", metavar="FORMAT", help="onnx")
    parser.add_argument("inputs", nargs="*", metavar="CFG WEIGHTS", help="the network")
    _network.add_arguments(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--decode", action="store_true", help="rows x, y, w, h, objectness, scores of every box"
    )
    model.add_argument(
        "--opset", type=int, metavar="N", help="the lowest that has all activations (13; mish: 18)"
    )
    model.add_argument("--batch", type=int, metavar="N", help="only this many pictures (any)")
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
    taken = _targets.Taken(_model.files(arguments))
    _targets.check_file("-o", arguments.output, taken, overwrite=arguments.overwrite)
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
    write_new(arguments.output, content, overwrite=arguments.overwrite, hint=_targets.HINT)
    print(f"{arguments.output}: {len(content):,} bytes")
    return 0
