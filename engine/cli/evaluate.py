"""Evaluate a detector on labelled pictures: average precision, hits and misses, curves.

LIST holds the names of pictures, one per line; DIR holds the pictures (or a folder images/). With a
darknet .data file and no LIST, the pictures are those of its `valid`. Labels
are YOLO .txt or Pascal VOC .xml files next to the pictures, or in labels/ or Annotations/ next to
their folder. A COCO .json file lists pictures and objects. --detections evaluates a results file
instead of a detector. --mot evaluates identities in videos: MOTA, IDF1 and HOTA.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import FAILED, _model, _output_files, _sources
from engine.cli._json_report import JsonReport
from engine.cli._stderr import print_stderr
from engine.cli._table import Cell, align
from engine.cli._write_all import write_all
from engine.errors import ImageError, InputError
from engine.files import data_set_yaml
from engine.files.naming import shown
from engine.outputs.record import add_file

if TYPE_CHECKING:
    from PIL import Image

    from engine.detector import Detector
    from engine.evaluate.examples import Example
    from engine.evaluate.ground_truth import GroundTruth
    from engine.evaluate.ranking import Counts
    from engine.evaluate.score import ClassScore, Report, Rules
    from engine.vision.image import Decoder

_MAX_CONFUSED = 5
_KEEP_ALL = 1.0  # an IoU threshold that suppresses nothing
_MIN_SCORE, _THRESHOLD = 0.005, 0.25  # for the ranking, and for the counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _model.add_arguments(parser, "LIST|DIR|JSON", "labelled pictures")
    truth = parser.add_argument_group("ground truth")
    truth.add_argument(
        "--labels",
        metavar="DIR",
        help="folder of the label files, below which they may have the folders of their pictures",
    )
    truth.add_argument("--images", metavar="DIR", help="folder of the pictures of a COCO file")
    _sources.add_decode(truth)
    _sources.add_untrusted(truth)
    truth.add_argument(
        "--mot",
        nargs=2,
        metavar=("TRUTH", "FOUND"),
        help="score tracking: text files of MOTChallenge, or folders of them",
    )
    boxes = parser.add_argument_group("detections")
    boxes.add_argument(
        "--detections", metavar="FILE", help="evaluate these COCO results instead of a model"
    )
    boxes.add_argument(
        "--min-score",
        type=float,
        help="minimum score to be ranked (0.005, or a lower --threshold; of a FILE all are)",
    )
    boxes.add_argument(
        "--clip",
        action="store_true",
        help="cut boxes at the edges of the picture, as ultralytics and darknet's valid do",
    )
    boxes.add_argument("--nms", type=float, default=0.45, help="maximum IoU within a class (0.45)")
    boxes.add_argument(
        "--hierarchy", type=float, default=0.5, help="threshold in a class tree (0.5)"
    )
    _model.add_tiles(boxes)
    rules = parser.add_argument_group("rules")
    rules.add_argument("--method", default="coco", help="coco, voc, voc11 or darknet (coco)")
    rules.add_argument("--match-iou", type=float, default=0.5, help="minimum IoU of a hit (0.5)")
    rules.add_argument(
        "--threshold",
        type=float,
        help="score threshold of the counts (0.25, or a higher --min-score)",
    )
    rules.add_argument("--points", type=int, default=0, help="darknet's: 0 (area), 11 or 101 (0)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--curves", metavar="DIR", help="where to write curves, confusion matrix, worst pictures"
    )
    output.add_argument(
        "--save-coco", metavar="DIR", help="where to write ground truth and detections for COCO"
    )
    output.add_argument("--json", metavar="FILE", help="the report as JSON; - is stdout")
    output.add_argument("--overwrite", action="store_true", help="replace existing files")


def run(arguments: argparse.Namespace) -> int:
    if arguments.mot:
        from engine.cli import _mot

        return _mot.run(arguments)
    from engine.evaluate import charts, coco_files
    from engine.evaluate.curves import best_threshold
    from engine.evaluate.score import Rules, score

    min_score, threshold = _scores(arguments)
    rules = Rules(arguments.method, arguments.match_iou, threshold, arguments.points)
    if rules.method == "darknet" and arguments.resize == "cfg":
        arguments.resize = "exact"  # with darknet's rounding, because IoUs depend on it
    source = _source(arguments)
    _check_truth_options(arguments, source)
    document = JsonReport.of(arguments, [source, arguments.detections])
    folders = {name: _new_folder(arguments, name) for name in ("curves", "save_coco")}
    if folders["save_coco"]:
        reserved = _output_files.ReservedPaths([source, arguments.detections])
        for file in coco_files.files_in(folders["save_coco"]):
            reserved.reserve("--save-coco", str(file))
        if document and not document.is_stdout:
            reserved.reserve("--json", arguments.json)
    if arguments.detections:
        truth = _truth(arguments, source, _names(arguments.names))
        _protect_inputs(truth, document, folders["curves"])
        examples, failures = _examples_from_file(arguments, truth)
        about: dict[str, object] = {"detections": arguments.detections}
        if arguments.min_score is not None:
            about["min_score"] = min_score
            examples = [each.above(min_score) for each in examples]
    else:
        chosen = {"nms": arguments.nms, "hierarchy": arguments.hierarchy}
        chosen |= _sources.trust(arguments) | _sources.decoding(arguments)
        chosen |= _model.tiling(arguments)
        with _model.load(arguments, threshold=min_score, **chosen) as detector:
            if detector.task != "detector":
                raise InputError(f"{arguments.cfg}: is not a detector. Try: classify --list")
            truth = _truth_for(arguments, source, detector)
            _protect_inputs(truth, document, folders["curves"])
            examples, failures = _examples_from_detector(detector, truth, rules.method)
            about = {
                "cfg": str(arguments.cfg),
                "device": detector.device,
                "min_score": min_score,
                "nms": detector.suppression.threshold,
                "nms_kind": detector.suppression.kind,
                "hierarchy": detector.settings.hierarchy,
                "size": detector.size,
                "resize": arguments.resize,
                **_model.tiling(arguments),
            }
    about["clip"] = arguments.clip
    if arguments.clip:
        examples = [each.cut_at_edges() for each in examples]
    report = score(examples, truth.names, rules)
    _print_problems(truth, failures, left_out=len(truth.entries) - len(examples))
    if failures and not examples:
        print_stderr("Error: no picture could be read: nothing was measured")
        return FAILED
    problems = {
        "unlabelled": truth.unlabelled,
        "label_problems": truth.problems,
        "unreadable": [str(each) for each in failures if each.result is None],
        "overflowing": [str(each) for each in failures if each.result is not None],
    }
    best = best_threshold(report)
    best_f1 = None if best is None else {"f1": best[1], "threshold": best[0]}
    content = {**about, **report.to_dict(), "best_mean_f1": best_f1, **problems}
    if document:
        for example in examples:
            counts = {"objects": len(example.objects), "detections": len(example.detections)}
            document.add({"path": example.path, "image_id": example.image_id, **counts})

    def save_json() -> None:
        if document:
            document.write(ground_truth=source, **content)

    def save_coco() -> None:
        if folder := folders["save_coco"]:
            coco_files.write(folder, truth, examples, overwrite=arguments.overwrite)

    def save_curves() -> None:
        if folder := folders["curves"]:
            with _decoder(arguments) as decoder:
                written = charts.write(
                    folder,
                    report,
                    examples,
                    read=partial(_picture, orient=not arguments.no_exif, decoder=decoder),
                    overwrite=arguments.overwrite,
                )
            for path in written:
                add_file(path)

    def show() -> None:
        print(*_lines(report, truth, about), sep="\n")

    if document and document.is_stdout:
        write_all([save_coco, save_curves], save_json)
    else:
        write_all([save_json, save_coco, save_curves], show)
    if truth.has_no_labels:
        print_stderr("Error: no picture has a label file: nothing was measured. See --labels")
    return FAILED if failures or truth.problems or truth.has_no_labels else 0


# ------------------------------------------------------------ input


def _scores(arguments: argparse.Namespace) -> tuple[float, float]:
    """Return the lowest ranked score, and the threshold of the counts, which need all above it."""
    from engine.arguments import fraction

    least, counted = arguments.min_score, arguments.threshold
    least = None if least is None else fraction("--min-score", least)
    counted = None if counted is None else fraction("--threshold", counted)
    if least is None:
        least = _MIN_SCORE if counted is None else min(_MIN_SCORE, counted)
    if counted is None:
        counted = max(_THRESHOLD, least)
    if counted < least:
        problem = f"is below --min-score {least:g}, and boxes between them would not be counted"
        raise InputError(f"--threshold {counted:g}: {problem}. Give one of them")
    return least, counted


def _source(arguments: argparse.Namespace) -> str:
    if not arguments.inputs and arguments.detections:
        raise InputError("no ground truth named: expected a LIST, a DIR or a COCO .json file")
    inputs = _model.take_inputs(arguments, "labelled pictures", may_be_none=True)
    if not inputs and arguments.data:
        from engine.darknet.names import find_file

        return str(find_file(arguments.data, "valid"))
    if not inputs:
        raise InputError("no pictures named: expected a LIST, DIR or .json file, or --data FILE")
    if len(inputs) > 1:
        raise InputError(f"expected one LIST, DIR or .json file, got {len(inputs)}: {inputs[1]!r}")
    return inputs[0]


def _check_truth_options(arguments: argparse.Namespace, source: str) -> None:
    """Refuse options for another kind of ground truth."""
    if _is_coco(source) and arguments.labels:
        raise InputError(f"--labels: {shown(source)} holds its labels itself. Leave --labels out")
    if arguments.images and not _is_coco(source):
        raise InputError(f"--images: belongs to a COCO .json file, got {shown(source)}")


def _is_coco(source: str) -> bool:
    return Path(source).suffix.lower() == ".json"


def _names(file: str | None) -> list[str] | None:
    from engine.evaluate.text_files import read_text

    if file is None:
        return None
    data_set_yaml.refuse(file, "names", InputError)
    return [name.strip() for name in read_text(Path(file)).rstrip().split("\n")]


def _truth(arguments: argparse.Namespace, source: str, names: Sequence[str] | None) -> GroundTruth:
    from engine.evaluate import coco_files
    from engine.outputs import labelled_pictures

    if _is_coco(source):
        return coco_files.read_truth(source, names, pictures=arguments.images)
    if names is None:
        raise InputError(
            f"{source}: labels need names. Name the classes with --names, all in their order"
        )
    return labelled_pictures.read(source, names, labels=arguments.labels)


def _truth_for(arguments: argparse.Namespace, source: str, detector: Detector) -> GroundTruth:
    """Read the ground truth; a detector without class names takes those of a COCO file."""
    from engine.evaluate.coco_files import class_numbers, is_name, matched_in_order

    if _is_coco(source) and not any(map(is_name, detector.labels)):
        truth = _truth(arguments, source, None)
        is_numbered = len(class_numbers(truth.names)) == len(truth.names)  # "class 10" is number 10
        if not is_numbered and len(truth.names) == len(detector.labels):
            remarks = matched_in_order(shown(source), truth.names, detector.labels)
            truth.remarks.extend(remarks)
            return truth
    return _truth(arguments, source, detector.labels)


def _protect_inputs(truth: GroundTruth, document: JsonReport | None, curves: Path | None) -> None:
    """Refuse outputs that would replace pictures or labels."""
    pictures = [entry.path for entry in truth.entries]
    if document:
        document.check([*truth.label_files, *pictures])
    if curves and any(_output_files.is_folder_of(curves, picture) for picture in pictures):
        problem = "contains pictures that are read, and a curve could replace one"
        raise InputError(f"--curves {shown(str(curves))}: {problem}. Name another folder")


def _examples_from_detector(
    detector: Detector, truth: GroundTruth, method: str
) -> tuple[list[Example], list[ImageError]]:
    """Run the detector; also return the pictures' errors, some of which come with a result."""
    from engine.evaluate import darknet
    from engine.evaluate.examples import Detections, Example
    from engine.evaluate.ground_truth import size_problem

    suppression, classes = detector.suppression, len(detector.labels)
    in_darknet_order = method == "darknet"
    examples, failures = [], []
    results = detector.stream(
        (entry.path for entry in truth.entries),
        on_error="yield",
        expand=False,
        nms=_KEEP_ALL if in_darknet_order else None,
    )
    for entry, result in zip(truth.entries, results, strict=True):
        if isinstance(result, ImageError):
            failures.append(result)
            if result.result is None:
                continue
            result = result.result  # empty: its objects count as missed
        if entry.size is not None and entry.size != result.size:
            truth.problems.append(size_problem(entry.path, entry.size, result.size))
        if in_darknet_order:
            found = darknet.suppressed(result, suppression, classes)
        else:
            found = Detections.from_result(result)
        objects = entry.objects(result.size)
        examples.append(Example(entry.image_id, result.size, objects, found, entry.path))
    return examples, failures


def average_precisions(
    detector: Detector, source: str, *, is_quiet: bool = False
) -> tuple[dict[str, float | None], int]:
    """Return COCO's average precisions on labelled pictures, and how many could not be read."""
    from engine.evaluate.score import score

    truth = _labelled(source, detector.labels)
    examples, failures = _examples_from_detector(detector, truth, "coco")
    if not is_quiet:
        _print_problems(truth, failures, left_out=len(truth.entries) - len(examples))
    return score(examples, truth.names).summary, len(failures)


def require_labels(source: str, names: Sequence[str]) -> None:
    """Raise an InputError if average_precisions() would find nothing to measure."""
    any_size = 1000, 1000
    for entry in _labelled(source, names).entries:
        if not entry.objects(entry.size or any_size).optional.all():
            return
    raise InputError(f"{shown(source)}: expected labelled pictures, got none with a label")


def _labelled(source: str, names: Sequence[str]) -> GroundTruth:
    from engine.evaluate import coco_files
    from engine.outputs import labelled_pictures

    if _is_coco(source):
        return coco_files.read_truth(source, names)
    return labelled_pictures.read(source, names)


def _examples_from_file(
    arguments: argparse.Namespace, truth: GroundTruth
) -> tuple[list[Example], list[ImageError]]:
    """Read a results file; read a picture only if its size is unknown."""
    from engine.evaluate.coco_files import read_results
    from engine.evaluate.examples import Detections, Example
    from engine.vision.image import read

    detections = read_results(arguments.detections, truth)
    examples, failures = [], []
    with _decoder(arguments) as decoder:
        for entry in truth.entries:
            try:
                size = (
                    entry.size
                    or read(entry.path, orient=not arguments.no_exif, decoder=decoder).size
                )
            except ImageError as error:
                failures.append(error)
                continue
            found = detections.get(entry.image_id) or Detections.of([], [], [])
            examples.append(Example(entry.image_id, size, entry.objects(size), found, entry.path))
    return examples, failures


# ------------------------------------------------------------ output


def _picture(path: str, *, orient: bool, decoder: Decoder | None) -> Image.Image:
    from engine.vision.image import read

    return read(path, orient=orient, decoder=decoder).to_image()


@contextmanager
def _decoder(arguments: argparse.Namespace) -> Iterator[Decoder | None]:
    """Yield a decoder in a separate process for untrusted pictures; None for trusted ones."""
    from engine.vision.decode_pool import DecodePool

    with closing(DecodePool(1)) if arguments.untrusted else nullcontext() as pool:
        yield pool.read if pool else None


def _new_folder(arguments: argparse.Namespace, option: str) -> Path | None:
    """Create a folder early, so that an error does not waste the evaluation."""
    name = getattr(arguments, option)
    if name is None:
        return None
    flag = f"--{option.replace('_', '-')}"
    _output_files.refuse_stdout(flag, name, "folder")
    folder = _output_files.make_folder(flag, name)
    if not arguments.overwrite and any(folder.iterdir()):
        raise InputError(f"{flag} {name}: is not empty. {_output_files.HINT}")
    return folder


def _print_problems(truth: GroundTruth, failures: Sequence[ImageError], *, left_out: int) -> None:
    from engine.evaluate.ground_truth import shortened

    for line in truth.warnings():
        print_stderr(f"Warning: {line}")
    for line in shortened(list(map(str, failures))):
        print_stderr(f"Error: {line}")
    if left_out:
        count = f"{left_out} of {len(truth.entries)}"
        print_stderr(f"{count} pictures could not be read and are left out")


def _lines(report: Report, truth: GroundTruth, about: dict[str, object]) -> Iterator[str]:
    from engine.evaluate.curves import best_threshold

    objects = f"{report.counts.objects} objects of {len(truth.names)} classes"
    yield f"{truth.source}: {report.pictures} pictures, {objects}"
    rules = report.rules
    rows = [["method", str(rules)]]
    if "nms" in about:
        ranked = f"score above {about['min_score']}, nms {about['nms_kind']} {about['nms']}"
        rows.append(["detections", f"{ranked}, {about['device']}"])
    else:
        limit = f", score above {about['min_score']}" if "min_score" in about else ""
        rows.append(["detections", f"{about['detections']}{limit}"])
    if about["clip"]:
        rows[-1][1] += ", cut at the edges"
    rows.append(["counts", f"score above {rules.threshold:g}, IoU {rules.match_iou:g}"])
    yield from align(rows)
    yield ""
    yield from align([[name, _or_dash(value)] for name, value in report.summary.items()])
    yield ""
    heading: list[Cell] = ["class", "pictures", "objects", "AP"]
    heading += [_ap_at(rules)] if rules.method == "coco" else []
    heading += ["TP", "FP", "FN", "precision", "recall", "F1", "average IoU"]
    present = [
        each for each in report.classes if each.counts.objects or each.counts.false_positives
    ]
    yield from align([heading, *(_row(each, rules) for each in present), _all(report)])
    if best := best_threshold(report):
        yield ""
        yield f"best mean F1: {best[1]:.3f} at a score threshold of {best[0]:.3f}"
    yield from _confused(report, truth)
    if rules.method == "darknet":
        from engine.cli._darknet.map import closing_lines

        yield from closing_lines(report)


def _row(each: ClassScore, rules: Rules) -> list[Cell]:
    precisions = [each.average_precision]
    precisions += [each.average_precision_at_iou] if rules.method == "coco" else []
    return [shown(each.name), each.pictures, *_cells(precisions, each.counts)]


def _all(report: Report) -> list[Cell]:
    precisions = [next(iter(report.summary.values()))]
    if report.rules.method == "coco":
        known = [each.average_precision_at_iou for each in report.classes]
        found = [each for each in known if each is not None]
        precisions.append(sum(found) / len(found) if found else None)
    return ["all", report.pictures, *_cells(precisions, report.counts)]


def _ap_at(rules: Rules) -> str:
    return f"AP{round(rules.match_iou * 100)}"


def _cells(precisions: Sequence[float | None], counts: Counts) -> list[Cell]:
    return [
        counts.objects,
        *map(_or_dash, precisions),
        counts.true_positives,
        counts.false_positives,
        counts.false_negatives,
        counts.precision,
        counts.recall,
        counts.f1,
        counts.average_iou,
    ]


def _confused(report: Report, truth: GroundTruth) -> Iterator[str]:
    from engine.evaluate.confusion import most_confused

    pairs = most_confused(report.confusion, _MAX_CONFUSED)
    if pairs:
        yield ""
        names = [shown(name) for name in truth.names]
        texts = (f"{names[right]} as {names[found]} ({count})" for right, found, count in pairs)
        yield f"most confused: {', '.join(texts)}"


def _or_dash(value: float | None) -> Cell:
    return "-" if value is None else value
