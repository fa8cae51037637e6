"""Classify pictures: print the best classes, or measure the accuracy over a list."""

from __future__ import annotations

import argparse

from engine.cli import _accuracy, _model, _outputs, _ray, _sources
from engine.cli._run import run_all
from engine.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _model.add_arguments(parser, "SOURCE", _sources.WHAT)
    _sources.add_arguments(parser)
    _accuracy.add_arguments(parser)
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help="show N classes (5)")
    _outputs.add_arguments(parser, of_boxes=False)
    _ray.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _accuracy.run(arguments)
    if arguments.labels:
        raise InputError("--labels: only with --list")
    chosen = {
        "top_k": arguments.top_k,
        "max_pixels": arguments.max_pixels,
        "lenient": arguments.lenient,
        **_sources.trust(arguments),
        **_sources.decoding(arguments),
    }
    if _ray.is_wanted(arguments):
        return _ray.run(arguments, task="classifier", **chosen)
    with _model.warm_up(arguments):
        inputs = _model.take_inputs(arguments)
        feed = _sources.feed(arguments, inputs, output_folders=_outputs.picture_folders(arguments))
        progress = _outputs.progress(arguments)
        sinks = _outputs.sinks(arguments, feed, progress)
        detector = _model.load(arguments, has_default=False, **chosen)
    with detector:
        if detector.task != "classifier":
            raise InputError(f"{arguments.cfg}: is not a classifier. Try: detect")
        return run_all(
            detector,
            feed,
            sinks,
            arguments,
            about={"cfg": str(arguments.cfg), "device": detector.device},
            progress=progress,
        )
