"""Run darknet's detector commands as they are typed, with darknet's options and output.

test DATA CFG WEIGHTS [IMAGE]     print the objects of a picture; without IMAGE, of names on stdin
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from engine.cli._darknet import files, options
from engine.errors import InputError, suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument(
        "files", nargs="*", metavar="DATA CFG WEIGHTS [IMAGE]", help="in darknet's order"
    )
    options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "train":
        raise InputError("detector train: the engine runs networks and does not train them")
    if arguments.action not in _ACTIONS:
        hint = suggest(arguments.action, _ACTIONS)
        known = ", ".join(_ACTIONS)
        raise InputError(f"detector: expected {known}, got {arguments.action!r}.{hint}")
    return _ACTIONS[arguments.action](arguments)


def _test(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import test

    return test.run(arguments, files.parse("detector test", arguments.files), threshold=0.25)


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"test": _test}
