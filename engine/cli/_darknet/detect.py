"""Run darknet's `detect CFG WEIGHTS [IMAGE]`, which takes the names from cfg/coco.data."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine import bundled
from engine.cli._darknet import files, options, test
from engine.errors import InputError

_DATA = "cfg/coco.data"
_THRESHOLD = 0.24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", metavar="[DATA] CFG WEIGHTS [IMAGE]", help="in darknet's order"
    )
    options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    words = arguments.files
    if words and Path(words[0]).suffix == ".data":
        return test.run(arguments, files.parse("detect", words), threshold=_THRESHOLD)
    model = files.parse("detect", words, has_data=False)
    if Path(_DATA).is_file():
        return test.run(arguments, model._replace(data=_DATA), threshold=_THRESHOLD)
    from engine.darknet import cfg, graph

    names = bundled.folder("cfg") / "coco.names"
    if graph.build(cfg.read(model.cfg)).classes != len(names.read_text().splitlines()):
        raise InputError(f"detect: {_DATA}: not found. Use: detector test DATA CFG WEIGHTS IMAGE")
    return test.run(arguments, model, threshold=_THRESHOLD, names=names)
