"""evaluate --mot: score tracking results."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from engine.cli._json_report import JsonReport, refuse_others
from engine.cli._table import Cell, align
from engine.cli._write_all import write_all
from engine.errors import InputError
from engine.evaluate.mot import Tally, tally
from engine.evaluate.mot_files import find_pairs, read_tracks
from engine.files.naming import shown

_COUNTS = {  # headings, and the names in Tally.to_dict()
    "frames": "frames",
    "objects": "objects",
    "boxes": "boxes",
    "misses": "misses",
    "false": "false_positives",
    "switches": "switches",
    "fragments": "fragmentations",
    "identities": "identities",
    "found": "found_identities",
    "tracked": "mostly_tracked",
    "lost": "mostly_lost",
}
_SCORES = {
    "HOTA": "hota",
    "DetA": "detection_accuracy",
    "AssA": "association_accuracy",
    "MOTA": "mota",
    "IDF1": "idf1",
    "ID precision": "id_precision",
    "ID recall": "id_recall",
}

# Options of the command that do not apply to --mot, and their defaults.
_OTHERS = {
    **dict.fromkeys(("labels", "images", "detections", "min_score", "threshold", "tiles")),
    **dict.fromkeys(("overlap", "curves", "save_coco")),
    "clip": False,
    "method": "coco",
    "match_iou": 0.5,
    "points": 0,
}


def run(arguments: argparse.Namespace) -> int:
    """Compare tracks with ground truth, print the metrics, return the exit status."""
    if arguments.inputs:
        raise InputError(f"--mot: expected no LIST, DIR or JSON, got {arguments.inputs[0]!r}")
    refuse_others("--mot", arguments, _OTHERS)
    truth, found = arguments.mot
    pairs = list(find_pairs(truth, found))
    document = None
    if arguments.json:
        document = JsonReport(arguments.json, overwrite=arguments.overwrite)
        document.check(file for _, *files in pairs for file in files)
    tallies = {}
    for name, truth_file, found_file in pairs:
        tallies[name] = tally(read_tracks(truth_file, is_truth=True), read_tracks(found_file))
    if not any(each.objects for each in tallies.values()):
        raise InputError(f"{shown(truth)}: has no boxes to evaluate")
    total = Tally.total(tallies.values())

    def save() -> None:
        if document:
            sequences = [{"name": name, **each.to_dict()} for name, each in tallies.items()]
            about = {"ground_truth": truth, "tracks": found}
            document.write_report(**about, **total.to_dict(), sequences=sequences)

    def show() -> None:
        print(*_lines(tallies, total), sep="\n")

    if document and document.is_stdout:
        save()
    else:
        write_all([save], show)
    return 0


def _lines(tallies: dict[str, Tally], total: Tally) -> Iterator[str]:
    for columns in (_SCORES, _COUNTS):
        rows: list[list[Cell]] = [
            _row(shown(name), each, columns) for name, each in tallies.items()
        ]
        if len(tallies) > 1:
            rows.append(_row("all", total, columns))
        yield from align(rows, headings=["sequence", *columns])
        if columns is _SCORES:
            yield ""


def _row(name: str, each: Tally, columns: dict[str, str]) -> list[Cell]:
    values = each.to_dict()
    return [name, *(values[key] for key in columns.values())]
