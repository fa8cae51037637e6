"""`detector recall`: how many labelled objects are covered by a box of any class."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.cli import FAILED
from engine.cli._darknet import network
from engine.cli._darknet.files import Files
from engine.cli._darknet.labels import labels_of, warn_of_labels_of_others
from engine.cli._stderr import print_stderr
from engine.errors import ImageError

_THRESHOLD, _NMS, _IOU = 0.001, 0.4, 0.5  # darknet's


def run(
    arguments: argparse.Namespace,
    model: Files,
    *,
    paths: Sequence[str],
    names: str | Path | None = None,
) -> int:
    """Print darknet's line after each picture, on stderr as darknet does."""
    import numpy as np

    from engine.evaluate.iou import iou_xywh
    from engine.vision.rows import split_by_objectness

    warn_of_labels_of_others(paths)
    proposals = correct = total = pictures = failures = 0
    overlap = 0.0
    with network.load(arguments, model, names=names) as detector:
        print(*network.heading(detector, model), sep="\n", flush=True)
        chosen = network.suppression(detector, arguments.nms, usual=_NMS)
        suppression = replace(chosen, kind="default")  # darknet ignores the .cfg's kind here
        for number, (path, taken) in enumerate(network.read_all(detector, paths)):
            if isinstance(taken, ImageError):
                print_stderr(f"Error: {taken}")
                failures += 1
                continue
            pictures += 1
            found = network.candidates(detector, taken, threshold=_THRESHOLD)
            if found.error:
                print_stderr(f"Error: {found.error}")
                failures += 1
            rows, _ = split_by_objectness(found.rows, suppression)
            truth = labels_of(path, len(detector.labels))
            proposals += len(rows)
            total += len(truth)
            if truth and len(rows):
                boxes = np.array([box for _, box in truth], np.float32)
                best = iou_xywh(rows[:, :4], boxes).max(axis=0)
                overlap += float(best.sum(dtype=np.float64))
                correct += int((best > np.float32(_IOU)).sum())
            counted = max(total, 1)
            shares = f"{overlap * 100 / counted:.2f}%\tRecall:{100 * correct / counted:.2f}%"
            per_picture = f"{proposals / pictures:.2f}"
            line = f"{number:5d} {correct:5d} {total:5d}\tRPs/Img: {per_picture}\tIOU: {shares}"
            print_stderr(line)
    return FAILED if failures else 0
