"""The metadata of a model: names of the classes, input, anchors, layout, versions.

Keys without a prefix are those that programs for ultralytics' models read, as Python literals. Keys
that begin with `Image.` are defined by ONNX, those that begin with `engine.` by this project;
tables are JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.export.suppression import Nms
from engine.plan import ops
from engine.plan.build import Plan
from engine.version import __version__

PREFIX = "engine."
_PIXELS = {1: "Gray8", 3: "Rgb8"}
_TASKS = {"detector": "detect", "classifier": "classify"}  # ultralytics' words


@dataclass(frozen=True)
class Description:
    """Facts about a network that its plan does not hold."""

    source: str  # the name of the .cfg
    names: Sequence[str]  # class names
    task: Literal["detector", "classifier", "other"]
    resize: str  # how a picture is fitted to the input: stretch, letterbox or crop


def metadata(
    plan: Plan,
    description: Description | None,
    *,
    layout: str,
    batch: int | None,
    nms: Nms | None,
    half: bool,
    dynamic: bool,
) -> dict[str, str]:
    """Return the metadata of a model; without a description only what the plan says."""
    channels, height, width = plan.source.shape.sides
    arguments = {"batch": batch or 1, "half": half, "dynamic": dynamic, "nms": nms is not None}
    found = {
        "version": __version__,
        "stride": str(max((_stride(plan, head) for head in plan.heads), default=1)),
        "batch": str(batch or 1),
        "channels": str(channels),
        "imgsz": str([height, width]),
        "args": str(arguments),
        f"{PREFIX}layout": layout,
        f"{PREFIX}colours": colours(channels),
        f"{PREFIX}axes": "NCHW",
        f"{PREFIX}scale": str(1 / 255),
        f"{PREFIX}precision": "float16" if half else "float32",
        f"{PREFIX}heads": json.dumps([_head(plan, head) for head in plan.heads]),
    }
    if channels in _PIXELS:
        found["Image.BitmapPixelFormat"] = _PIXELS[channels]
        found["Image.ColorSpaceGamma"] = "SRGB"
        found["Image.NominalPixelRange"] = "Normalized_0_1"
    if nms is not None:
        found[f"{PREFIX}nms"] = json.dumps(_nms(nms))
    if description is not None:
        found["description"] = f"{description.source}, a network of darknet"
        found["names"] = str(dict(enumerate(description.names)))
        found[f"{PREFIX}names"] = json.dumps(list(description.names))
        found[f"{PREFIX}resize"] = description.resize
        if description.task in _TASKS:
            found["task"] = _TASKS[description.task]
    return found


def colours(channels: int) -> str:
    return {1: "grey", 3: "RGB"}.get(channels, f"{channels} channels")


def _head(plan: Plan, head: ops.Head) -> Mapping[str, Any]:
    """Return one detection layer; anchors are in pixels of the input."""
    anchors: Sequence[Sequence[float]] = ()
    if isinstance(head, ops.YoloHead):
        anchors = head.anchors
    elif isinstance(head, ops.RegionHead):
        cell = plan.source.shape.width / head.grid[0], plan.source.shape.height / head.grid[1]
        anchors = [(across * cell[0], down * cell[1]) for across, down in head.anchors]
    return {
        "layer": plan.layers.index(head.src),
        "kind": type(head).__name__.removesuffix("Head").lower(),
        "stride": _stride(plan, head),
        "classes": head.classes,
        "anchors": [list(pair) for pair in anchors],
    }


def _stride(plan: Plan, head: ops.Head) -> int:
    """Return the input's pixels per cell; where the last cell is cut off, a power of two."""
    side = head.side if isinstance(head, ops.GridHead) else head.src.shape.width
    pixels = plan.source.shape.width / side
    return int(pixels) if pixels.is_integer() else 2 ** max(0, round(math.log2(pixels)))


def _nms(nms: Nms) -> Mapping[str, Any]:
    chosen = nms.suppression
    return {
        "kind": chosen.kind,
        "threshold": nms.threshold,
        "iou": nms.overlap,
        "max_detections": nms.max_detections,
        "beta": chosen.beta,
    }
