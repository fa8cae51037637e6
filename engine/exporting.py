"""Export a network with its description to ONNX, for the command, Detector and compat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast

from engine.arguments import fraction, whole
from engine.darknet.graph import Graph
from engine.errors import InputError
from engine.export import onnx
from engine.export.layouts import RAW, check_layout
from engine.export.metadata import Description
from engine.export.suppression import Nms
from engine.inputs import Intake
from engine.passes import optimise
from engine.plan.build import Plan
from engine.vision.boxes import Kind, Suppression


@dataclass(frozen=True)
class ExportOptions:
    """What a model looks like; `nms` holds the settings of NMS inside the graph."""

    layout: str = RAW
    nms: Nms | None = None
    half: bool = False
    dynamic: bool = False
    batch: int | None = None
    opset: int | None = None


def checked_options(
    *,
    layout: str | None = None,
    nms: bool = False,
    threshold: float | None = None,
    iou: float | None = None,
    max_detections: int | None = None,
    half: bool = False,
    dynamic: bool = False,
    batch: int | None = None,
    opset: int | None = None,
) -> ExportOptions:
    """Return the options, or raise an InputError before a network is read.

    Without a layout it is raw, or with `nms` darknet's. Threshold, iou and max_detections are for
    `nms` only; Nms and Suppression have their defaults.
    """
    settings = {"threshold": threshold, "iou": iou, "max_detections": max_detections}
    for name, value in settings.items():
        if value is not None and not nms:
            raise InputError(f"{name}: expected nms, too, got {value} alone")
    if batch is not None:
        batch = whole("batch", batch)
    chosen = _nms(threshold, iou, max_detections) if nms else None
    layout = layout or ("darknet" if nms else RAW)
    check_layout(layout, chosen)
    return ExportOptions(layout, chosen, half, dynamic, batch, opset)


def _nms(threshold: float | None, iou: float | None, max_detections: int | None) -> Nms:
    default = Nms()
    return Nms(
        default.threshold if threshold is None else threshold,
        default.suppression if iou is None else Suppression(fraction("iou", iou)),
        default.max_detections if max_detections is None else max_detections,
    )


def export(
    graph: Graph, plan: Plan, labels: Sequence[str], options: ExportOptions | None = None
) -> onnx.Model:
    """Return the ONNX model of a network; `plan` is without any fusion."""
    options = options or ExportOptions()
    return onnx.build(
        optimise(plan, onnx.PASSES),
        graph.titles,
        opset=options.opset,
        batch=options.batch,
        layout=options.layout,
        nms=options.nms and _of_network(options.nms, graph),
        half=options.half,
        dynamic=options.dynamic,
        description=Description(
            PurePath(graph.file).name, labels, graph.task, Intake.of(graph).resize
        ),
    )


def _of_network(nms: Nms, graph: Graph) -> Nms:
    """Return the settings with the kind of NMS of the .cfg."""
    kind, beta = graph.nms
    suppression = Suppression(nms.overlap, cast(Kind, kind), beta)
    return Nms(nms.threshold, suppression, nms.max_detections)
