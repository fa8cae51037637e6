"""Measure the top-1 and top-k accuracy of a classifier over a list of pictures.

As in darknet the true class of a picture is the first class whose label is part of its path.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.cli import FAILED, _model, _sources
from engine.cli._json_report import JsonReport, refuse_others
from engine.cli._stderr import print_stderr
from engine.errors import ImageError, InputError

# Options of the command that do not apply to a list, and their defaults.
_OTHERS = {
    **dict.fromkeys(("jsonl", "csv", "max_frames", "reconnect")),
    **dict.fromkeys(("ray", "out", "format", "actors", "shard")),
    **dict.fromkeys(("csv_all", "resume", "recursive", "progress", "fail_fast"), False),
    **dict.fromkeys(("stride", "at_once"), 1),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("accuracy")
    group.add_argument("--list", metavar="FILE", help="score the pictures that FILE names")
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="the classes as paths name them, if not by their names",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the result and return the exit status."""
    import numpy as np

    from engine.darknet.names import read_names
    from engine.evaluate.dataset import read_list
    from engine.evaluate.top_k_accuracy import TopKAccuracy, class_in, is_ambiguous

    arguments.inputs.append(arguments.list)
    more = _model.take_inputs(arguments)[:-1]
    if more:
        raise InputError(f"--list {arguments.list}: expected no other pictures, got {more[0]!r}")
    paths = [str(path) for path in read_list(Path(arguments.list))]
    document = JsonReport.of(arguments, [arguments.list, arguments.labels, *paths])
    refuse_others("--list", arguments, _OTHERS)
    chosen = {
        "top_k": arguments.top_k,
        "max_pixels": arguments.max_pixels,
        "lenient": arguments.lenient,
        **_sources.trust(arguments),
        **_sources.decoding(arguments),
    }
    with _model.load(arguments, has_default=False, **chosen) as detector:
        if detector.task != "classifier":
            raise InputError(f"{arguments.cfg}: is not a classifier. Try: evaluate")
        labels = detector.labels
        if arguments.labels:
            labels = read_names(arguments.labels, len(labels), allow_longer=True)
        true_classes = [class_in(path, labels) for path in paths]
        if not any(each is not None for each in true_classes):
            raise InputError(f"{arguments.list}: no path contains a label. See --labels")
        accuracy, failures, left_out = TopKAccuracy(arguments.top_k), 0, 0
        leaves = detector.leaves
        outcomes: Iterator[Any] = detector.stream(
            paths, on_error="yield", expand=False, workers=arguments.workers
        )
        for path, true_class, outcome in zip(paths, true_classes, outcomes, strict=True):
            if isinstance(outcome, ImageError) or true_class is None:
                failures += 1
                reason = str(outcome) if true_class is not None else f"{path}: contains no label"
                print_stderr(f"Error: {reason}")
                entry: dict[str, object] = {"path": path, "error": reason}
                if true_class is not None and outcome.result is not None:
                    accuracy.add_missed()  # it was read, but the network overflowed
                else:
                    left_out += 1
            else:
                # as in darknet only the leaves of a class tree count
                accuracy.add(np.where(leaves, outcome.probabilities, 0), true_class)
                entry = {**outcome.to_dict(), "right": labels[true_class]}
            if document:
                document.add(entry)
        scores = accuracy.to_dict()
        if document:
            about = {"cfg": str(arguments.cfg), "device": detector.device}
            document.write(list=arguments.list, **about, **scores)
    ambiguous = sum(is_ambiguous(path, labels) for path in paths)
    if ambiguous:
        count = f"{ambiguous} of {len(paths)}"
        print_stderr(
            f"Warning: {count} paths contain several labels: the first class counts, as in darknet"
        )
    if document is None or not document.is_stdout:
        shares = ", ".join(f"{name} {scores[name]:.4f}" for name in scores if name != "pictures")
        print(f"{arguments.list}: {accuracy.pictures} pictures, {shares}")
    if left_out:
        print_stderr(f"{left_out} of {len(paths)} pictures are left out")
    return FAILED if failures else 0
