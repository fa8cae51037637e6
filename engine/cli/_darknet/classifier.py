"""`classifier predict` and `classifier valid`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.cli import FAILED
from engine.cli._darknet import files, lines, network
from engine.cli._darknet.files import Files
from engine.cli._stderr import print_stderr
from engine.errors import ConfigError, ImageError, InputError
from engine.files.naming import escaped, shown


def predict(arguments: argparse.Namespace, model: Files) -> int:
    """Print the best classes of the picture, or of pictures named on standard input."""
    import numpy as np

    options = _options(model)
    failures = 0
    with network.load(arguments, model, names=_names(model, options), task="classifier") as net:
        width, height = net.size
        print(*network.heading(net, model, has_time=True), sep="\n")
        classes = _number(options, "classes", len(net.labels))
        print(f" classes = {classes}, output in cfg = {len(net.labels)} ")
        if classes != len(net.labels):
            raise ConfigError(
                f"{shown(model.data)}: classes: expected {len(net.labels)} as in the network, "
                f"got {classes}"
            )
        top = min(_top(arguments, options), classes)
        parents = net.graph.tree_parents
        for path in files.pictures(model.picture):
            try:
                found: Any = next(net.stream([path], expand=False))
            except ImageError as error:
                print_stderr(f"Error: {error}")
                failures += 1
                continue
            print(f"{width} {height}")
            spent = math.fsum(time for stage, time in found.timing.items() if stage != "prepare")
            print(lines.predicted(path, spent))
            for best in np.argsort(-found.probabilities, kind="stable")[:top].tolist():
                name = escaped(found.label_of(best))
                text = f"{name}: {found.probabilities[best]:f}"
                if parents:
                    above = found.label_of(parents[best]) if parents[best] >= 0 else "Root"
                    text = f"{best}, {text}, parent: {escaped(above)} "
                print(text)
    return FAILED if failures else 0


def valid(arguments: argparse.Namespace, model: Files) -> int:
    """Print the accuracy after each picture of the `valid` list; its path contains the label."""
    import numpy as np

    from engine.darknet.names import find_file, read_names
    from engine.evaluate.top_k_accuracy import TopKAccuracy, class_in

    options = _options(model)
    paths = files.listed(model.data, "valid")
    names = _names(model, options)
    failures = 0
    with network.load(arguments, model, names=names, task="classifier") as net:
        labels: Sequence[str] = net.labels
        if "labels" in options and (file := find_file(model.data, "labels")) != names:
            labels = read_names(file, len(net.labels), allow_longer=True)
        print(*network.heading(net, model, has_time=True), sep="\n")
        print(" TOP calculation...")
        top = min(_top(arguments, options), len(labels))
        accuracy = TopKAccuracy(top)
        outcomes: Iterator[Any] = net.stream(paths, on_error="yield", expand=False, workers=2)
        for path, found in zip(paths, outcomes, strict=True):
            if isinstance(found, ImageError):
                print_stderr(f"Error: {found}")
                failures += 1
                if found.result is not None:
                    accuracy.add_missed()
                continue
            right = class_in(path, labels)
            accuracy.add(
                np.where(net.leaves, found.probabilities, 0), -1 if right is None else right
            )
            first, among = accuracy.to_dict()["top1"], accuracy.among_top / accuracy.pictures
            print(f"\n{accuracy.pictures - 1}: top 1: {first:f}, top {top}: {among:f}", end="")
        print()
    return FAILED if failures else 0


def _options(model: Files) -> dict[str, str]:
    from engine.darknet.names import read_data

    return read_data(model.data)


def _names(model: Files, options: dict[str, str]) -> Path:
    from engine.darknet.names import find_file

    return find_file(model.data, "names" if "names" in options else "labels")


def _top(arguments: argparse.Namespace, options: dict[str, str]) -> int:
    given: int | None = arguments.t
    if given is not None and given < 0:
        raise InputError(f"-t: expected a whole number above 0, got {given}")
    return given or _number(options, "top", 1)


def _number(options: dict[str, str], key: str, default: int) -> int:
    from engine.arguments import parse_integer

    number = parse_integer(options[key]) if key in options else default
    if number is None or number < 1:
        raise ConfigError(f"{key}: expected a whole number above 0, got {options[key]!r}")
    return number
