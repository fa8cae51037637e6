"""Detect objects in pictures and videos; print a table or write files."""

from __future__ import annotations

import argparse

from engine.cli import _model, _outputs, _ray, _sources, _tracking
from engine.cli._run import run_all
from engine.errors import InputError
from engine.vision.classes import TypedClass

_SETTINGS = ("threshold", "nms", "hierarchy", "agnostic_nms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _model.add_arguments(parser, "SOURCE", _sources.WHAT)
    _sources.add_arguments(parser)
    boxes = parser.add_argument_group("boxes")
    boxes.add_argument(
        "--threshold",
        "--thresh",
        "--conf",
        type=float,
        default=0.25,
        help="minimum score (0.25)",
    )
    boxes.add_argument(
        "--nms", "--iou", type=float, default=0.45, help="maximum IoU within a class (0.45)"
    )
    boxes.add_argument(
        "--hierarchy", "--hier", type=float, default=0.5, help="threshold in a class tree (0.5)"
    )
    boxes.add_argument(
        "--classes", action="append", metavar="A,B", help="only these, by name or number"
    )
    boxes.add_argument(
        "--exclude", action="append", metavar="A,B", help="all but these, by name or number"
    )
    boxes.add_argument(
        "--read", action="store_true", help="read the codes that are found: see docs/codes.md"
    )
    boxes.add_argument("--max-det", type=int, metavar="N", help="at most N boxes per picture")
    boxes.add_argument(
        "--agnostic-nms", action="store_true", help="apply NMS across classes as well"
    )
    _model.add_tiles(boxes)
    _tracking.add_arguments(parser)
    _outputs.add_arguments(parser, of_boxes=True)
    _ray.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    chosen = {name: getattr(arguments, name) for name in _SETTINGS}
    more = {
        "max_detections": arguments.max_det,
        "max_pixels": arguments.max_pixels,
        "lenient": arguments.lenient,
        **_sources.trust(arguments),
        **_sources.decoding(arguments),
        "classes": _classes(arguments.classes),
        "exclude": _classes(arguments.exclude) or (),
        **({"read": True} if arguments.read else {}),
        **_model.tiling(arguments),
    }
    if _ray.is_wanted(arguments):
        return _ray.run(arguments, **chosen, **more)
    following = _tracking.Following(arguments) if _tracking.is_wanted(arguments) else None
    with _model.warm_up(arguments):
        inputs = _model.take_inputs(arguments)
        feed = _sources.feed(arguments, inputs, output_folders=_outputs.picture_folders(arguments))
        if following:
            feed = following.in_frame_order(feed)
        progress = _outputs.progress(arguments)
        sinks = _outputs.sinks(arguments, feed, progress)
        about = {**chosen, **(following.about if following else {})}
        if arguments.read:
            about["read"] = True
        if following:
            chosen["threshold"] = following.threshold
        detector = _model.load(arguments, **chosen, **more)
    with detector:
        if detector.task != "detector":
            raise InputError(f"{arguments.cfg}: is not a detector. Try: classify")
        _model.check_classes(detector)
        return run_all(
            detector,
            feed,
            sinks,
            arguments,
            about={
                "cfg": str(arguments.cfg),
                "device": detector.device,
                **about,
                **_model.tiling(arguments),
            },
            progress=progress,
            keep_pictures=_outputs.needs_pictures(arguments),
            following=following,
            hiding=_outputs.hiding(arguments, detector),
        )


def _classes(options: list[str] | None) -> list[TypedClass] | None:
    """Parse options such as "cat,dog" and "3"."""
    if options is None:
        return None
    return _outputs.parse_classes("classes", options)
