"""Name what pictures show: the best classes of a classifier; or score it over a list."""

from __future__ import annotations

import argparse

from engine.cli import _accuracy, _model
from engine.cli._output import JsonDocument
from engine.cli._run import run_all
from engine.cli._table import align
from engine.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _model.add_arguments(parser)
    _accuracy.add_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--top-k", type=int, default=5, metavar="N", help="best classes shown (5)")
    output.add_argument("--json", metavar="FILE", help="write results as JSON; - is stdout")
    output.add_argument("--overwrite", action="store_true", help="replace an earlier FILE")


def run(arguments: argparse.Namespace) -> int:
    from engine.vision.naming import shown
    from engine.vision.result import Classification

    if arguments.list:
        return _accuracy.run(arguments)
    inputs = _model.take_inputs(arguments)
    document = JsonDocument.of(arguments, inputs)

    def show(file: str, result: object, milliseconds: float) -> None:
        assert isinstance(result, Classification)
        if document is None or not document.is_stdout:
            width, height = result.size
            print(f"{shown(file)}  {width} x {height}  {milliseconds:.1f} ms")
            rows = [("  " + best.label, best.score) for best in result]
            print(*align(rows), sep="\n")

    with _model.load(arguments, top_k=arguments.top_k) as detector:
        if detector.task != "classifier":
            raise InputError(f"{arguments.cfg}: is not a classifier. Try: detect")
        status = run_all(detector, inputs, show, document=document)
        if document:
            document.write(cfg=str(arguments.cfg), device=detector.device)
    return status
