"""`detector test`: print what is in pictures; write predictions.jpg, -out and -save_labels."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import FAILED
from engine.cli._darknet import files, lines, network, predictions
from engine.cli._darknet.files import Files
from engine.cli._output_files import ReservedPaths, check_output
from engine.cli._stderr import print_stderr
from engine.errors import EngineError, ImageError, InputError
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.arrays import Array
    from engine.cli._sinks.json_documents import DarknetDocument
    from engine.detector import Detector


def run(
    arguments: argparse.Namespace,
    model: Files,
    *,
    threshold: float,
    names: str | Path | Sequence[str] | None = None,
) -> int:
    """Run the pictures and return the exit status; `threshold` is the default of -thresh."""
    threshold = threshold if arguments.thresh is None else arguments.thresh
    failures = 0
    reserved = ReservedPaths(files.read_by(model, names), stdin=model.picture is None)
    with (
        predictions.Drawing(reserved) as drawing,
        document_at("-out", arguments.out, reserved) as document,
        network.load(arguments, model, names=names) as detector,
    ):
        print(*network.heading(detector, model), sep="\n")
        path = None
        for path in drawing.pictures(model.picture):
            try:
                _run_one(arguments, detector, path, threshold, document, drawing)
            except (ImageError, InputError) as error:
                print_stderr(f"Error: {error}")
                failures += 1
        if path is None and arguments.out and Path(arguments.out).is_file():
            raise InputError(f"-out {shown(arguments.out)}: no picture named, so it is kept")
    return FAILED if failures else 0


def _run_one(
    arguments: argparse.Namespace,
    detector: Detector,
    path: str,
    threshold: float,
    document: DarknetDocument | None,
    drawing: predictions.Drawing,
) -> None:
    from engine.sources.item import Item
    from engine.vision.rows import suppress_rows

    taken = network.read(detector, path, has_letterbox=arguments.letter_box)
    hierarchy = 0.5 if arguments.hier is None else arguments.hier
    found = network.candidates(detector, taken, threshold=threshold, hierarchy=hierarchy)
    if found.error:
        raise found.error
    rows = suppress_rows(found.rows, network.suppression(detector, arguments.nms))
    names, size = detector.labels, found.picture.size
    print(*network.detection_layers(detector), sep="\n")
    print(lines.predicted(path, found.milliseconds))
    for line in lines.objects(
        rows, names, size, threshold=threshold, extended=arguments.ext_output
    ):
        print(line)
    result = predictions.result_of(detector, found.picture, rows)
    if document:
        document.take(Item(path, path), result, found.milliseconds)
    if arguments.save_labels:
        _save_labels(path, rows)
    drawing.write(result)


def _save_labels(path: str, rows: Array) -> None:
    """Write the label file of a picture; unlike darknet, refuse to replace a different one."""
    from engine.evaluate.dataset import find_labels, usual_label_file
    from engine.files.atomic import write_new

    text = ""
    for row in rows[(rows[:, 5:] > 0).any(axis=1)]:
        numbers = " ".join(f"{each:.4f}" for each in row[:4].tolist())
        text += f"{int(row[5:].argmax())} {numbers}\n"
    target = find_labels(Path(path)) or usual_label_file(Path(path))
    if not target.is_file() or target.read_bytes() != text.encode():
        write_new(target, text.encode(), hint="Move the labels away, or leave out -save_labels")


@contextmanager
def document_at(
    option: str, path: str | None, reserved: ReservedPaths
) -> Iterator[DarknetDocument | None]:
    """Open a JSON file; complete it even after an interrupt, and remove it after an error."""
    if path is None:
        yield None
        return
    from engine.cli._sinks.json_documents import DarknetDocument

    check_output(option, path, reserved, overwrite=True)
    document = DarknetDocument(path, existing="replace")
    document.begin({}, ())
    try:
        yield document
    except (EngineError, OSError):
        document.discard()
        raise
    except KeyboardInterrupt:
        document.finish()
        raise
    document.finish()
