"""Run darknet's classifier commands as they are typed, with darknet's options and output.

predict DATA CFG WEIGHTS [IMAGE]   print the best classes; without IMAGE, of names on stdin
valid DATA CFG WEIGHTS             accuracy over the list of the .data file
"""

from __future__ import annotations

import argparse

from engine.cli._darknet import files, options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_action(parser, ACTIONS, "DATA CFG WEIGHTS [IMAGE]")


def run(arguments: argparse.Namespace) -> int:
    return options.run_action("classifier", arguments, ACTIONS)


def _predict(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import classifier

    return classifier.predict(arguments, files.parse("classifier predict", arguments.files))


def _valid(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import classifier

    return classifier.valid(arguments, files.parse("classifier valid", arguments.files))


ACTIONS: options.Actions = {"predict": _predict, "valid": _valid}
