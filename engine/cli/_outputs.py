"""Options that select the outputs of a run, and the sinks that write them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

from engine.errors import InputError
from engine.files.naming import shown
from engine.vision.classes import TypedClass

if TYPE_CHECKING:
    from engine.cli._output_files import Existing, ReservedPaths
    from engine.cli._progress import Progress
    from engine.cli._sinks.base import Sink
    from engine.cli._sources import Feed, NamedMedia
    from engine.detector import Detector

_JSON_STYLES = ("engine", "darknet", "coco")
_FILES = ("json", "jsonl", "csv", "coco_dataset")
_WHOLE = ("json", "coco_dataset")  # complete only at the end of a run
_FOLDERS = ("output", "save_txt", "crops")
_PICTURES = ("output", "crops")
_RESUMABLE = ("jsonl", "csv", "save_txt", "output")
_TRACKS = ("track", "line", "zone", "save_mot")
_WAYS = ("blur", "pixelate")
_ONLY_WITH = {
    "json_style": ("json",),
    "save_conf": ("save_txt",),
    "flat": _FOLDERS,
    "csv_all": ("csv",),
    "images_json": _WHOLE,
    "overlap": ("tiles",),
    "show_tiles": ("output",),
    "blur": _PICTURES,
    "pixelate": _PICTURES,
}


def add_arguments(parser: argparse.ArgumentParser, *, of_boxes: bool) -> None:
    output = parser.add_argument_group("output: see docs/outputs.md")
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
            "--coco-dataset",
            metavar="FILE",
            help="results as a COCO data set, to correct in a labelling tool",
        )
        output.add_argument(
            "--images-json", metavar="FILE", help="COCO annotations that number the pictures"
        )
    output.add_argument(
        "--jsonl",
        metavar="FILE",
        help="results as JSON lines, one per picture; - is stdout",
    )
    output.add_argument("--csv", metavar="FILE", help="results as CSV rows; - is stdout")
    output.add_argument(
        "--csv-all", action="store_true", help="rows for empty and broken pictures, too"
    )
    if of_boxes:
        output.add_argument("--save-txt", metavar="DIR", help="where to write YOLO label files")
        output.add_argument("--save-conf", action="store_true", help="add scores to label files")
        output.add_argument("--crops", metavar="DIR", help="where to write detections as crops")
        output.add_argument(
            "--blur",
            action="append",
            metavar="A,B|all",
            help="hide these classes in -o and --crops, permanently",
        )
        output.add_argument(
            "--pixelate",
            action="append",
            metavar="A,B|all",
            help="hide these classes with coarse squares",
        )
        output.add_argument(
            "--show-tiles", action="store_true", help="draw the tiles of --tiles, too"
        )
        output.add_argument(
            "--flat", action="store_true", help="do not repeat the folders of the pictures"
        )
    output.add_argument("--overwrite", action="store_true", help="replace existing files")
    output.add_argument(
        "--resume", action="store_true", help="continue a stopped run: with the same command"
    )
    output.add_argument(
        "--progress", action="store_true", help="a line of progress in place of the table"
    )
    output.add_argument("--quiet", action="store_true", help="print no table and no progress")


def written_to(arguments: argparse.Namespace) -> list[str]:
    """Return the files and folders that the run writes."""
    names = ("output", *_FILES, "save_txt", "crops", "save_mot")
    chosen = (getattr(arguments, name, None) for name in names)
    return [shown(path) for path in chosen if path not in (None, "-")]


def picture_folders(arguments: argparse.Namespace) -> list[str]:
    """Return the folders into which the run writes pictures."""
    from engine.cli._sinks.annotated import is_one_file

    chosen = (getattr(arguments, name, None) for name in _PICTURES)
    return [each for each in chosen if each and not is_one_file(each)]


def needs_pictures(arguments: argparse.Namespace) -> bool:
    return bool(arguments.output or arguments.crops)


def hiding(arguments: argparse.Namespace, detector: Detector) -> dict[str, list[str | int]]:
    """Return the arguments of Result.hide(); refuse classes that would not be detected."""
    from engine.vision.hide import hidden_classes, refuse_missed

    given = {way: getattr(arguments, way) for way in _WAYS}
    wanted = {way: parse_classes(way, each) for way, each in given.items() if each is not None}
    for way, chosen in wanted.items():
        hidden = hidden_classes(way, chosen, detector.labels)
        if arguments.max_det is not None:
            raise InputError(f"--{way}: not with --max-det, which leaves boxes out")
        by = "--classes or --exclude"
        refuse_missed(f"--{way}", hidden, detector.settings.classes, detector.labels, by)
    return {
        way: [each.resolved(detector.labels) for each in chosen] for way, chosen in wanted.items()
    }


def parse_classes(what: str, options: list[str]) -> list[TypedClass]:
    """Parse options such as "cat,dog" and "3"."""
    entries = [entry.strip() for option in options for entry in option.split(",") if entry.strip()]
    if not entries:
        raise InputError(f"{what}: expected at least one, got none")
    return [TypedClass(each) for each in entries]


def progress(arguments: argparse.Namespace) -> Progress:
    from engine.cli._progress import Progress

    if arguments.progress and arguments.quiet:
        raise InputError("--progress and --quiet: expected one of them, got both")
    return Progress(is_wanted=not arguments.quiet, as_line=arguments.progress)


def sinks(arguments: argparse.Namespace, feed: Feed, progress: Progress) -> list[Sink]:
    """Create the sinks; each raises an error at once if it cannot write its output."""
    from engine.cli import _model, _output_files, _sources
    from engine.cli._sinks.kept import Kept
    from engine.cli._sinks.record import Record, Reopened, Replaced
    from engine.cli._sinks.table import Table

    _check_combination(arguments)
    if written_to(arguments) and not arguments.resume:
        _sources.require_one(feed)
    images = getattr(arguments, "images_json", None)
    reserved = feed.reserved
    for each in filter(None, [*feed.known_files, *_model.files(arguments), images]):
        reserved.add_input(each)
    existing = _existing(arguments)
    _check_folders(arguments)
    if existing == "replace":
        _protect_labels(arguments, feed)
    for name in _FILES:
        path = getattr(arguments, name, None)
        option = f"--{name.replace('_', '-')}"
        if path == "-":
            reserved.reserve(option, path)
        elif path:
            is_whole = name in _WHOLE
            _output_files.check_output(
                *(option, path, reserved),
                overwrite=existing != "refuse",
                hint=_hint(arguments),
                in_place=not is_whole,
            )
    made = [
        *_row_sinks(arguments, existing),
        *_crop_sinks(arguments, feed, reserved, existing),
        *_document_sinks(arguments, feed, existing),
        *_folder_sinks(arguments, feed, reserved, existing),
    ]
    # Names are recorded before new files appear, but after files that replace others.
    naming = feed.naming if feed.naming and feed.naming.has_folders else None
    replaces = existing == "replace"
    if replaces and reserved.has_stdin:
        made.insert(0, Kept(reserved, naming))
    elif replaces and naming:
        made.insert(0, Reopened(naming, feed.found))
    elif naming:
        made.insert(0, Record(naming, feed.found, at_once=arguments.at_once))
    if naming and existing != "refuse":
        made.append(Replaced(naming, feed.found, reopens=replaces, at_once=arguments.at_once))
    if not (arguments.quiet or arguments.progress or any(sink.is_stdout for sink in made)):
        made.insert(0, Table(progress.print))
    return made


def _protect_labels(arguments: argparse.Namespace, feed: Feed) -> None:
    """Refuse to replace a picture's labels, such as x.txt next to x.jpg, with results."""
    from engine.evaluate.dataset import all_labels, labels_next_to_folder
    from engine.files.real_paths import real

    for name in (*_FILES, "save_mot"):
        path = getattr(arguments, name, None) or ""
        if PurePath(path).suffix.lower() not in (".txt", ".xml"):
            continue
        for each in feed.found:
            picture = Path(each.media.name)
            if picture.stem != PurePath(path).stem:
                continue
            labels = (*all_labels(picture), *labels_next_to_folder(picture))
            if real(path) in map(real, labels):
                option = f"--{name.replace('_', '-')} {shown(path)}"
                problem = f"with --overwrite would replace labels of {shown(picture)}"
                raise InputError(f"{option}: {problem}. Name another file")


def _check_combination(arguments: argparse.Namespace) -> None:
    for option, others in _ONLY_WITH.items():
        if _given(arguments, [option]) and not _given(arguments, others):
            raise InputError(f"{_options([option])}: only with {_options(others)}")
    if not arguments.resume:
        return
    if arguments.overwrite:
        raise InputError("--resume and --overwrite: expected one of them, got both")
    _check_resumable(arguments)


def _check_resumable(arguments: argparse.Namespace) -> None:
    """Raise if --resume does not work with the chosen outputs."""
    from engine.files.atomic import stream_number

    if _given(arguments, _TRACKS):
        raise InputError("--track: not with --resume: identities of the stopped run are unknown")
    if whole := _given(arguments, _WHOLE):
        raise InputError(f"--resume: not with {_options(whole)}, written at the end. Use --jsonl")
    names = [each for each in _RESUMABLE if hasattr(arguments, each)]
    paths = (getattr(arguments, each) for each in names)
    if all(each in (None, "-") or stream_number(each) is not None for each in paths):
        raise InputError(f"--resume: expected a file from {_options(names)}, got none")


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> list[str]:
    return [each for each in names if getattr(arguments, each, None)]


def _options(names: Iterable[str]) -> str:
    return " or ".join(f"--{each}" for each in names).replace("_", "-")


def _hint(arguments: argparse.Namespace) -> str:
    """Return the hint if a file exists; it names --resume only where that is allowed."""
    from engine.cli import _output_files

    try:
        _check_resumable(arguments)
    except InputError:
        return _output_files.HINT
    return _output_files.HINT_WITH_RESUME


def _check_folders(arguments: argparse.Namespace) -> None:
    """Refuse an output folder that has the name of an output file."""
    from engine.cli._sinks.annotated import is_one_file
    from engine.cli._sinks.mot import is_mot_file
    from engine.files.real_paths import real

    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in ("output", *_FILES, "save_txt", "crops", "save_mot"):
        path = getattr(arguments, name, None)
        if path in (None, "-"):
            continue
        option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
        is_file = (
            name in _FILES
            or (name == "output" and is_one_file(path))
            or (name == "save_mot" and is_mot_file(path))
        )
        (files if is_file else folders)[option] = path
    for option, folder in folders.items():
        for other, file in files.items():
            if PurePath(real(folder)).is_relative_to(real(file)):
                raise InputError(
                    f"{option} {shown(folder)}: would make a folder of the file that {other} "
                    "writes. Name another folder"
                )


def _existing(arguments: argparse.Namespace) -> Existing:
    if arguments.resume:
        return "resume"
    return "replace" if arguments.overwrite else "refuse"


# The sinks below are in the order in which a picture is written. With --resume, sinks that do not
# know whether they have a picture rely on those after them.


def _row_sinks(arguments: argparse.Namespace, existing: Existing) -> Iterator[Sink]:
    from engine.cli import _tracking
    from engine.cli._sinks.csv_rows import BoxRows, ClassRows
    from engine.vision.serialize import CODE_COLUMNS, TRACK_COLUMN

    if arguments.csv:
        rows: type[BoxRows] = ClassRows
        more: list[str] = []
        if hasattr(arguments, "save_txt"):
            rows = BoxRows
            more += [TRACK_COLUMN] * _tracking.is_wanted(arguments)
            more += CODE_COLUMNS if arguments.read else ()
        yield rows(arguments.csv, more, existing=existing, all_pictures=arguments.csv_all)


def _crop_sinks(
    arguments: argparse.Namespace, feed: Feed, reserved: ReservedPaths, existing: Existing
) -> Iterator[Sink]:
    from engine.cli._sinks.crops import Crops

    if getattr(arguments, "crops", None):
        assert feed.naming is not None
        folder = (arguments.crops, reserved, _checked(arguments, feed, existing))
        hides = any(getattr(arguments, way, None) for way in _WAYS)
        hint = _hint(arguments)
        yield Crops(*folder, existing=existing, hint=hint, naming=feed.naming, hides=hides)


def _checked(arguments: argparse.Namespace, feed: Feed, existing: Existing) -> Sequence[NamedMedia]:
    """Return the sources whose outputs must not exist; with --flat, include archive members.

    If two of these share a name, the outputs of the one that gets a number are checked when
    written.
    """
    from engine.cli._sinks.coco import items_of
    from engine.cli._sources import NamedMedia
    from engine.sources.media import Media, MediaKind

    if existing != "refuse" or not arguments.flat:
        return feed.found
    sources: list[NamedMedia] = []
    for each in feed.found:
        if each.media.kind is MediaKind.ARCHIVE:
            sources += (
                NamedMedia(Media(item.name, MediaKind.PICTURE), PurePosixPath(item.output).name)
                for item in items_of(each)
            )
        else:
            sources.append(each)
    return sources


def _document_sinks(
    arguments: argparse.Namespace, feed: Feed, existing: Existing
) -> Iterator[Sink]:
    from engine.cli._sinks.json_documents import DOCUMENTS, JsonLines

    style = getattr(arguments, "json_style", None) or "engine"
    if style == "coco" or getattr(arguments, "coco_dataset", None):
        yield from _coco_sinks(arguments, feed, existing, has_results=style == "coco")
    if arguments.json and style != "coco":
        yield DOCUMENTS[style](arguments.json, existing=existing)
    if arguments.jsonl:
        yield JsonLines(arguments.jsonl, existing=existing)


def _coco_sinks(
    arguments: argparse.Namespace, feed: Feed, existing: Existing, *, has_results: bool
) -> Iterator[Sink]:
    from engine.cli._sinks.coco import CocoDataset, CocoImages, CocoResults

    images = CocoImages.read(arguments.images_json) if arguments.images_json else None
    if has_results:
        yield CocoResults(arguments.json, images, feed.found, existing=existing)
    if arguments.coco_dataset:
        assert feed.naming is not None
        yield CocoDataset(
            *(arguments.coco_dataset, images, feed.found),
            existing=existing,
            naming=feed.naming,
            has_results=has_results,
        )


def _folder_sinks(
    arguments: argparse.Namespace, feed: Feed, reserved: ReservedPaths, existing: Existing
) -> Iterator[Sink]:
    from engine.cli import _sources
    from engine.cli._sinks.annotated import Annotated
    from engine.cli._sinks.labels import Labels

    if getattr(arguments, "output", None):
        pictures = (arguments.output, reserved, _checked(arguments, feed, existing))
        yield Annotated(
            *pictures,
            existing=existing,
            hint=_hint(arguments),
            show_tiles=arguments.show_tiles,
            at_once=arguments.at_once,
            holds=_sources.hidden_marks(arguments),
        )
    if getattr(arguments, "save_txt", None):
        with_score = arguments.save_conf
        assert feed.naming is not None
        yield Labels(
            *(arguments.save_txt, reserved, _checked(arguments, feed, existing)),
            with_score=with_score,
            existing=existing,
            hint=_hint(arguments),
            names_before=feed.naming.names_before,
        )
    if getattr(arguments, "save_mot", None):
        from engine.cli._sinks.mot import MotTracks

        yield MotTracks(arguments.save_mot, reserved, feed.found, existing=existing)


def _json_style(text: str) -> str:
    if text not in _JSON_STYLES:
        raise argparse.ArgumentTypeError(f"expected {', '.join(_JSON_STYLES)}, got {text!r}")
    return text
