"""Options that say what becomes of the results, and the outputs that they ask for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.errors import InputError

if TYPE_CHECKING:
    from engine.cli._progress import Progress
    from engine.cli._sinks.base import Sink
    from engine.cli._sources import Feed
    from engine.cli._targets import Taken

_JSON_STYLES = ("engine", "darknet", "coco")
_FILES = ("json", "jsonl", "csv")
_ONLY_WITH = {"json_style": "json", "save_conf": "save_txt"}


def add_arguments(parser: argparse.ArgumentParser, *, of_boxes: bool) -> None:
    output = parser.add_argument_group("output")
    if of_boxes:
        output.add_argument(
            "-o",
            "--output",
            metavar="DIR|FILE",
            help="annotated pictures and videos go here",
        )
    output.add_argument("--json", metavar="FILE", help="results as JSON; - is stdout")
    if of_boxes:
        output.add_argument(
            "--json-style", type=_json_style, help="engine, darknet or coco (engine)"
        )
    output.add_argument(
        "--jsonl",
        metavar="FILE",
        help="results as lines of JSON, one a picture; - is stdout",
    )
    output.add_argument("--csv", metavar="FILE", help="results as rows; - is stdout")
    if of_boxes:
        output.add_argument("--save-txt", metavar="DIR", help="YOLO's label files go here")
        output.add_argument("--save-conf", action="store_true", help="with the scores in them")
        output.add_argument("--crops", metavar="DIR", help="what was found, cut out, goes here")
    output.add_argument("--overwrite", action="store_true", help="replace earlier outputs")
    output.add_argument("--quiet", action="store_true", help="no table and no progress")


def needs_pictures(arguments: argparse.Namespace) -> bool:
    return bool(arguments.output or arguments.crops)


def sinks(arguments: argparse.Namespace, feed: Feed, progress: Progress) -> list[Sink]:
    """The outputs, each of which refuses here what cannot be."""
    from engine.cli import _model, _targets
    from engine.cli._sinks.table import Table

    for option, with_option in _ONLY_WITH.items():
        if getattr(arguments, option, None) and not getattr(arguments, with_option):
            told = f"--{option}: only with --{with_option}"
            raise InputError(told.replace("_", "-"))
    taken = _targets.Taken([*feed.known_files, *_model.files(arguments)])
    for name in _FILES:
        path = getattr(arguments, name, None)
        if path == "-":
            taken.claim(f"--{name}", path)
        elif path:
            _targets.check_file(f"--{name}", path, taken, overwrite=arguments.overwrite)
    made = [*_of_files(arguments), *_of_folders(arguments, feed, taken)]
    if not arguments.quiet and not any(sink.is_stdout for sink in made):
        made.insert(0, Table(progress.say))
    return made


def _of_files(arguments: argparse.Namespace) -> list[Sink]:
    from engine.cli._sinks.documents import DOCUMENTS, Lines
    from engine.cli._sinks.rows import BoxRows, ClassRows

    overwrite = arguments.overwrite
    made: list[Sink] = []
    if arguments.json:
        style = getattr(arguments, "json_style", None) or "engine"
        made.append(DOCUMENTS[style](arguments.json, overwrite=overwrite))
    if arguments.jsonl:
        made.append(Lines(arguments.jsonl, overwrite=overwrite))
    if arguments.csv:
        rows = BoxRows if hasattr(arguments, "save_txt") else ClassRows
        made.append(rows(arguments.csv, overwrite=overwrite))
    return made


def _of_folders(arguments: argparse.Namespace, feed: Feed, taken: Taken) -> list[Sink]:
    from engine.cli._sinks.annotated import Annotated
    from engine.cli._sinks.folders import Crops, Labels

    overwrite = arguments.overwrite
    made: list[Sink] = []
    if getattr(arguments, "output", None):
        made.append(Annotated(arguments.output, taken, len(feed.found), overwrite=overwrite))
    if getattr(arguments, "save_txt", None):
        labels = Labels(
            *(arguments.save_txt, taken, feed.pictures),
            with_score=arguments.save_conf,
            overwrite=overwrite,
        )
        made.append(labels)
    if getattr(arguments, "crops", None):
        made.append(Crops(arguments.crops, taken, overwrite=overwrite))
    return made


def _json_style(text: str) -> str:
    if text not in _JSON_STYLES:
        raise argparse.ArgumentTypeError(f"expected {', '.join(_JSON_STYLES)}, got {text!r}")
    return text
