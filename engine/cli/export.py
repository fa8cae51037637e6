"""Export a network for other programs: export onnx CFG WEIGHTS -o FILE.

The input is a batch of float images (batch, channels, height, width), RGB from 0 to 1. The outputs
are those of the detection layers, or boxes in a layout that other programs decode, or with --nms
the best boxes. The command ends with their names and shapes.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.cli import _model, _network, _output_files
from engine.errors import InputError, suggest
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.export.onnx import Model, Port

FORMATS = ("onnx",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", metavar="FORMAT", help="onnx")
    parser.add_argument(
        "inputs", nargs="*", default=[], metavar="CFG WEIGHTS", help="the network, or its name"
    )
    _network.add_arguments(parser)
    names = parser.add_argument_group("names of the classes, for the file's metadata")
    names.add_argument("--names", metavar="FILE", help="class names, one per line")
    names.add_argument("--data", metavar="FILE", help="darknet's .data file, for its names")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--layout",
        metavar="NAME",
        help="outputs: raw, or boxes as in darknet, yolov5, yolov8 (raw; darknet with --nms)",
    )
    model.add_argument(
        "--decode", action="store_const", const="darknet", dest="layout", help="--layout darknet"
    )
    model.add_argument(
        "--half", action="store_true", help="float16, but input and outputs in float32"
    )
    model.add_argument("--dynamic", action="store_true", help="take any height and width")
    model.add_argument("--batch", type=int, metavar="N", help="fix the batch size (any)")
    model.add_argument(
        "--opset", type=int, metavar="N", help="ONNX opset (the lowest possible: 13; mish: 18)"
    )
    boxes = parser.add_argument_group("boxes")
    boxes.add_argument("--nms", action="store_true", help="suppress boxes inside the model")
    boxes.add_argument(
        *("--threshold", "--thresh", "--conf"), type=float, help="minimum score (0.25)"
    )
    boxes.add_argument("--iou", type=float, help="maximum IoU within a class (0.45)")
    boxes.add_argument("--max-det", type=int, metavar="N", help="at most N boxes per picture (300)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the .onnx file")
    parser.add_argument("--overwrite", action="store_true", help="replace the file")


def run(arguments: argparse.Namespace) -> int:
    if arguments.format not in FORMATS:
        hint = suggest(arguments.format, FORMATS)
        raise InputError(f"format: expected onnx, got {arguments.format!r}.{hint}")
    _network.refuse_rest(_network.take_files(arguments, arguments.inputs))
    if not arguments.output:
        raise InputError("no output named: expected -o FILE")
    reserved = _output_files.ReservedPaths(_model.files(arguments))
    _output_files.check_output("-o", arguments.output, reserved, overwrite=arguments.overwrite)
    _output_files.check_ending("-o", arguments.output, ".onnx")
    return _write(arguments)


def _write(arguments: argparse.Namespace) -> int:
    from engine.exporting import ExportOptions, export
    from engine.files.atomic import write_new
    from engine.loading import labels_of

    options = ExportOptions(
        layout=arguments.layout,
        nms=arguments.nms,
        threshold=arguments.threshold,
        iou=arguments.iou,
        max_detections=arguments.max_det,
        half=arguments.half,
        dynamic=arguments.dynamic,
        batch=arguments.batch,
        opset=arguments.opset,
    )
    graph, plan = _network.read(arguments)
    labels = labels_of(arguments.names, arguments.data, graph, arguments.cfg)
    model = export(graph, plan, labels, options)
    write_new(
        arguments.output, model.content, overwrite=arguments.overwrite, hint=_output_files.HINT
    )
    _print(model, arguments.output)
    return 0


def _print(model: Model, path: str) -> None:
    precision = model.metadata["engine.precision"]
    size = f"{len(model.content):,} bytes"
    print(f"{shown(path)}: {size}, opset {model.opset}, {precision}")
    rows = [("input", each) for each in model.inputs] + [("output", each) for each in model.outputs]
    width = max(len(_port(each)) for _, each in rows)
    for direction, each in rows:
        print(f"  {direction:<6}  {_port(each):<{width}}  {each.meaning}")


def _port(port: Port) -> str:
    sides = ", ".join(map(str, port.sides))
    return f"{port.name} {port.kind} ({sides}{',' if len(port.sides) == 1 else ''})"
