"""Run darknet's yolo commands as they are typed: VOC's classes, no .data file.

test CFG WEIGHTS [IMAGE]   print the objects of a picture; without IMAGE, of names on stdin
demo CFG WEIGHTS [VIDEO]   print the objects of each frame; without VIDEO, of camera -c
"""

from __future__ import annotations

import argparse

from engine.cli._darknet import files, options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_action(parser, ACTIONS, "CFG WEIGHTS [IMAGE]")


def run(arguments: argparse.Namespace) -> int:
    return options.run_action("yolo", arguments, ACTIONS)


def _test(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import yolo

    return yolo.run(arguments, files.parse("yolo test", arguments.files, has_data=False))


def _demo(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import demo, yolo

    model = files.parse("yolo demo", arguments.files, has_data=False)
    return demo.run(arguments, model, threshold=yolo.THRESHOLD, names=yolo.NAMES)


ACTIONS: options.Actions = {"test": _test, "demo": _demo}
