"""Find objects in pictures: a table, annotated pictures, JSON."""

from __future__ import annotations

import argparse

from engine.cli import _model
from engine.cli._output import JsonDocument, PictureFolder
from engine.cli._run import run_all
from engine.cli._table import Cell, align
from engine.errors import InputError

_CHOSEN = ("threshold", "nms", "hierarchy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _model.add_arguments(parser)
    boxes = parser.add_argument_group("boxes")
    boxes.add_argument("--threshold", type=float, default=0.25, help="least score (0.25)")
    boxes.add_argument("--nms", type=float, default=0.45, help="largest overlap in a class (0.45)")
    boxes.add_argument("--hierarchy", type=float, default=0.5, help="threshold in a tree (0.5)")
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", metavar="DIR", help="annotated pictures go here")
    output.add_argument("--json", metavar="FILE", help="write results as JSON; - is stdout")
    output.add_argument("--overwrite", action="store_true", help="replace earlier outputs")


def run(arguments: argparse.Namespace) -> int:
    from engine.vision.naming import shown
    from engine.vision.result import Result

    inputs = _model.take_inputs(arguments)
    document = JsonDocument.of(arguments, inputs)
    folder = PictureFolder.of(arguments, inputs)
    chosen = {name: getattr(arguments, name) for name in _CHOSEN}

    def show(file: str, result: object, milliseconds: float) -> None:
        assert isinstance(result, Result)
        if document is None or not document.is_stdout:
            width, height = result.size
            print(f"{shown(file)}  {width} x {height}  {milliseconds:.1f} ms")
            rows: list[list[Cell]] = [
                ["  " + found.label, found.score, *map(round, found.box)] for found in result
            ]
            print(*(align(rows) if rows else ["  nothing found"]), sep="\n")
        if folder:
            result.save(folder.place(file), overwrite=arguments.overwrite)

    with _model.load(arguments, **chosen) as detector:
        if detector.task != "detector":
            raise InputError(f"{arguments.cfg}: has no boxes to give. Try: classify")
        status = run_all(detector, inputs, show, document=document)
        if document:
            document.write(cfg=str(arguments.cfg), device=detector.device, **chosen)
    return status
