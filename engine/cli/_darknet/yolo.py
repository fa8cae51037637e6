"""`yolo test`: the command for YOLOv1, which prints boxes in the order of the grid."""

from __future__ import annotations

import argparse

from engine import bundled
from engine.cli import FAILED
from engine.cli._darknet import lines, network, predictions
from engine.cli._darknet.files import Files
from engine.cli._output_files import ReservedPaths
from engine.cli._stderr import print_stderr
from engine.errors import ImageError, InputError
from engine.files.naming import escaped

THRESHOLD, _NMS = 0.2, 0.4  # darknet's
NAMES = bundled.folder("cfg") / "voc.names"  # hard-coded in darknet


def run(arguments: argparse.Namespace, model: Files) -> int:
    """Print the best class of each box, and write predictions.jpg."""
    from engine.vision.rows import suppress_in_place

    threshold = THRESHOLD if arguments.thresh is None else arguments.thresh
    failures = 0
    reserved = ReservedPaths(model, stdin=model.picture is None)
    with (
        predictions.Drawing(reserved) as drawing,
        network.load(arguments, model, names=NAMES) as detector,
    ):
        print(*network.heading(detector, model, trains=True), sep="\n")
        suppression = network.suppression(detector, arguments.nms, usual=_NMS)
        for path in drawing.pictures(model.picture):
            try:
                taken = network.read(detector, path)
                found = network.candidates(detector, taken, threshold=threshold)
                if found.error:
                    raise found.error
                rows, _ = suppress_in_place(found.rows, suppression)
                print(f"{escaped(path)}: Predicted in {found.milliseconds / 1e3:f} seconds.")
                for row in rows[(rows[:, 5:] > threshold).any(axis=1)]:
                    best = int(row[5:].argmax())
                    print(f"{escaped(detector.labels[best])}: {lines.percent(row[5 + best])}")
                drawing.write(predictions.result_of(detector, found.picture, rows))
            except (ImageError, InputError) as error:
                print_stderr(f"Error: {error}")
                failures += 1
    return FAILED if failures else 0
