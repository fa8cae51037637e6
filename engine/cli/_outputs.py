"""Options that select the outputs of a run, and the sinks that write them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.errors import InputError
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.cli._output_files import ReservedPaths
    from engine.cli._progress import Progress
    from engine.cli._sinks.base import Sink
    from engine.cli._sources import Feed

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
            help="where to write annotated pictures and videos",
        )
    output.add_argument("--json", metavar="FILE", help="results as JSON; - is stdout")
    if of_boxes:
        output.add_argument(
            "--json-style", type=_json_style, help="engine, darknet or coco (engine)"
        )
    output.add_argument(
        "--jsonl",
        metavar="FILE",
        help="results as JSON lines, one per picture; - is stdout",
    )
    output.add_argument("--csv", metavar="FILE", help="results as CSV rows; - is stdout")
    if of_boxes:
        output.add_argument("--save-txt", metavar="DIR", help="where to write YOLO label files")
        output.add_argument("--save-conf", action="store_true", help="add scores to label files")
        output.add_argument("--crops", metavar="DIR", help="where to write detections as crops")
    output.add_argument("--overwrite", action="store_true", help="replace existing files")
    output.add_argument("--quiet", action="store_true", help="print no table and no progress")


def written_to(arguments: argparse.Namespace) -> list[str] | None:
    """Return the files and folders that the run writes, or None for a quiet run."""
    if arguments.quiet:
        return None
    chosen = (getattr(arguments, name, None) for name in ("output", *_FILES, "save_txt", "crops"))
    return [shown(path) for path in chosen if path not in (None, "-")]


def needs_pictures(arguments: argparse.Namespace) -> bool:
    return bool(arguments.output or arguments.crops)


def sinks(arguments: argparse.Namespace, feed: Feed, progress: Progress) -> list[Sink]:
    """Create the sinks; each raises an error now if it cannot write its output."""
    from engine.cli import _model, _output_files
    from engine.cli._sinks.table import Table

    for option, with_option in _ONLY_WITH.items():
        if getattr(arguments, option, None) and not getattr(arguments, with_option):
            message = f"--{option}: only with --{with_option}"
            raise InputError(message.replace("_", "-"))
    reserved = _output_files.ReservedPaths([*feed.known_files, *_model.files(arguments)])
    for name in _FILES:
        path = getattr(arguments, name, None)
        if path == "-":
            reserved.reserve(f"--{name}", path)
        elif path:
            _output_files.check_output(f"--{name}", path, reserved, overwrite=arguments.overwrite)
    created = [*_file_sinks(arguments), *_folder_sinks(arguments, feed, reserved)]
    if not arguments.quiet and not any(sink.is_stdout for sink in created):
        created.insert(0, Table(progress.print))
    return created


def _file_sinks(arguments: argparse.Namespace) -> list[Sink]:
    from engine.cli._sinks.csv_rows import BoxRows, ClassRows
    from engine.cli._sinks.json_documents import DOCUMENTS, JsonLines

    overwrite = arguments.overwrite
    created: list[Sink] = []
    if arguments.json:
        style = getattr(arguments, "json_style", None) or "engine"
        created.append(DOCUMENTS[style](arguments.json, overwrite=overwrite))
    if arguments.jsonl:
        created.append(JsonLines(arguments.jsonl, overwrite=overwrite))
    if arguments.csv:
        rows = BoxRows if hasattr(arguments, "save_txt") else ClassRows
        created.append(rows(arguments.csv, overwrite=overwrite))
    return created


def _folder_sinks(arguments: argparse.Namespace, feed: Feed, reserved: ReservedPaths) -> list[Sink]:
    from engine.cli._sinks.annotated import Annotated
    from engine.cli._sinks.crops import Crops
    from engine.cli._sinks.labels import Labels

    overwrite = arguments.overwrite
    created: list[Sink] = []
    if getattr(arguments, "output", None):
        created.append(Annotated(arguments.output, reserved, feed.found, overwrite=overwrite))
    if getattr(arguments, "save_txt", None):
        labels = Labels(
            arguments.save_txt,
            reserved,
            feed.pictures,
            with_score=arguments.save_conf,
            overwrite=overwrite,
        )
        created.append(labels)
    if getattr(arguments, "crops", None):
        created.append(Crops(arguments.crops, reserved, overwrite=overwrite))
    return created


def _json_style(text: str) -> str:
    if text not in _JSON_STYLES:
        raise argparse.ArgumentTypeError(f"expected {', '.join(_JSON_STYLES)}, got {text!r}")
    return text
