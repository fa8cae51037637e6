"""How often a classifier names the right class first, or among the first, over a list of pictures.

As in darknet a picture's right class is the first one whose label is part of its path.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.cli import FAILED, _model
from engine.cli._output import JsonDocument
from engine.cli._stderr import tell
from engine.errors import ImageError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accuracy")
    group.add_argument("--list", metavar="FILE", help="score the pictures that FILE names")
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="what paths call the classes, if not their names",
    )


def run(arguments: argparse.Namespace) -> int:
    """The exit status."""
    import numpy as np

    from engine.darknet.names import read_names
    from engine.evaluate.dataset import read_list
    from engine.evaluate.top_k_accuracy import TopKAccuracy, class_in, is_ambiguous

    arguments.inputs.append(arguments.list)
    more = _model.take_inputs(arguments)[:-1]
    if more:
        raise InputError(f"--list {arguments.list}: leaves no place for {more[0]!r}")
    paths = [str(path) for path in read_list(Path(arguments.list))]
    document = JsonDocument.of(arguments, [arguments.list, arguments.labels, *paths])
    with _model.load(arguments, has_default=False, top_k=arguments.top_k) as detector:
        if detector.task != "classifier":
            raise InputError(f"{arguments.cfg}: is not a classifier. Try: evaluate")
        labels = detector.labels
        if arguments.labels:
            labels = read_names(arguments.labels, len(labels), allow_longer=True)
        right = [class_in(path, labels) for path in paths]
        if not any(each is not None for each in right):
            raise InputError(f"{arguments.list}: no path contains a label. See --labels")
        tally, failures = TopKAccuracy(arguments.top_k), 0
        leaves = detector.leaves
        outcomes = detector.stream(paths, on_error="yield")
        for path, truth, outcome in zip(paths, right, outcomes, strict=True):
            if isinstance(outcome, ImageError) or truth is None:
                failures += 1
                reason = str(outcome) if truth is not None else f"{path}: contains no label"
                tell(f"Error: {reason}")
                entry: dict[str, object] = {"path": path, "error": reason}
            else:
                # darknet: a class that has others below it is no answer
                tally.add(np.where(leaves, outcome.probabilities, 0), truth)
                entry = {**outcome.to_dict(), "right": labels[truth]}
            if document:
                document.add(entry)
        scores = tally.to_dict()
        if document:
            about = {"cfg": str(arguments.cfg), "device": detector.device}
            document.write(list=arguments.list, **about, **scores)
    ambiguous = sum(is_ambiguous(path, labels) for path in paths)
    if ambiguous:
        told = f"{ambiguous} of {len(paths)} paths contain several labels: the first class counts"
        tell(f"Warning: {told}, as in darknet")
    if document is None or not document.is_stdout:
        told = ", ".join(f"{name} {scores[name]:.4f}" for name in scores if name != "pictures")
        print(f"{arguments.list}: {tally.pictures} pictures, {told}")
    if failures:
        tell(f"{failures} of {len(paths)} pictures are left out")
    return FAILED if failures else 0
