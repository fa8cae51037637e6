"""Export a network with its description to ONNX, for the command, Detector and compat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast

from engine.arguments import check_kind, fraction, whole
from engine.darknet.graph import Graph
from engine.errors import InputError
from engine.export import onnx
from engine.export.layouts import RAW, check_layout
from engine.export.metadata import Description
from engine.export.suppression import Nms
from engine.inputs import Intake
from engine.passes import optimise
from engine.plan.build import Plan
from engine.settings import LARGEST_BATCH
from engine.vision.boxes import Kind, Suppression


@dataclass(frozen=True)
class ExportOptions:
    """The options of an exported model; conflicting ones raise InputError.

    The default `layout` is raw or, with `nms`, darknet's. `threshold`, `iou` and `max_detections`
    are for `nms` only; Nms and Suppression have their defaults.
    """

    layout: str | None = None
    nms: bool = False
    threshold: float | None = None
    iou: float | None = None
    max_detections: int | None = None
    half: bool = False
    dynamic: bool = False
    batch: int | None = None
    opset: int | None = None

    def __post_init__(self) -> None:
        for name in ("nms", "half", "dynamic"):
            check_kind(name, getattr(self, name), bool, "True or False")
        for name in ("threshold", "iou", "max_detections"):
            value = getattr(self, name)
            if value is not None and not self.nms:
                raise InputError(f"{name}: expected nms, too, got {value} alone")
        if self.batch is not None:
            whole("batch", self.batch, most=LARGEST_BATCH)
        check_layout(self.form, self.suppression)

    @property
    def form(self) -> str:
        """Return the layout, or its default."""
        return self.layout or ("darknet" if self.nms else RAW)

    @property
    def suppression(self) -> Nms | None:
        """Return the settings of NMS inside the graph, if it has any."""
        if not self.nms:
            return None
        default = Nms()
        return Nms(
            default.threshold if self.threshold is None else self.threshold,
            default.suppression if self.iou is None else Suppression(fraction("iou", self.iou)),
            default.max_detections if self.max_detections is None else self.max_detections,
        )


def export(
    graph: Graph, plan: Plan, labels: Sequence[str], options: ExportOptions | None = None
) -> onnx.Model:
    """Return the ONNX model of a network; `plan` must be unfused."""
    options = options or ExportOptions()
    nms = options.suppression
    return onnx.build(
        optimise(plan, onnx.PASSES),
        graph.titles,
        opset=options.opset,
        batch=None if options.batch is None else int(options.batch),
        layout=options.form,
        nms=nms and _of_network(nms, graph),
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
