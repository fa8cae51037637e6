"""Build an ONNX model from a plan: darknet's raw outputs, decoded boxes, or boxes after NMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arguments import is_whole
from engine.errors import InputError
from engine.export import data_movement, elementwise, linear, pooling  # noqa: F401  exporters
from engine.export.activations import MISH_OPSET
from engine.export.graph_builder import INPUT, MIN_OPSET, GraphBuilder, import_onnx
from engine.export.layouts import RAW, Output, Sides, check_heads, check_layout, outputs
from engine.export.metadata import Description, colours, metadata
from engine.export.suppression import Nms
from engine.plan.build import Plan
from engine.plan.ops import Op
from engine.version import __version__

PASSES = ("fold_batchnorm", "fuse_activation")  # the passes whose ops can be exported

_RESIZED = {"stretch": "stretched", "letterbox": "letterboxed", "crop": "cropped"}
_MAX_WEIGHT_BYTES = (1 << 31) - (1 << 20)  # a protobuf has at most 2 GiB, graph included


@dataclass(frozen=True)
class Port:
    """An input or output of a model; a side with a name is dynamic."""

    name: str
    kind: str  # float32 or int64
    sides: Sides
    meaning: str


@dataclass(frozen=True)
class Model:
    """An ONNX model: the bytes of its file, and its inputs and outputs."""

    content: bytes
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    metadata: Mapping[str, str]


def serialize(plan: Plan, titles: Sequence[str], **options: Any) -> bytes:
    """Return the bytes of an .onnx file; the options are those of build()."""
    return build(plan, titles, **options).content


def build(
    plan: Plan,
    titles: Sequence[str],
    *,
    opset: int | None = None,
    batch: int | None = None,
    layout: str = RAW,
    nms: Nms | None = None,
    half: bool = False,
    dynamic: bool = False,
    description: Description | None = None,
) -> Model:
    """Return the model of a plan, on which only PASSES have run.

    titles   the names of the layers for error messages
    opset    default: the lowest with a node for every activation
    batch    default: any batch size
    layout   "raw": an output `layer_N`, as darknet has it, for each detection layer; or all boxes,
             as "darknet", "yolov5" or "yolov8" has them; a classifier has the last two as well
    nms      the best boxes instead of all of them; not with "raw"
    half     weights and activations in float16; input, detection layers and outputs are float32
    dynamic  any height and width
    """
    check_layout(layout, nms)
    opset = _checked_opset(opset, plan)
    check_heads(plan, layout, nms)
    size = sum(array.nbytes for array in plan.constants.values()) // (2 if half else 1)
    if size > _MAX_WEIGHT_BYTES:
        raise InputError(f"ONNX: expected at most 2 GiB of weights, got {size / 2**30:.1f} GiB")
    graph = GraphBuilder(plan, opset, titles, half=half, dynamic=dynamic)
    for op in plan.ops:
        graph.add(op)
    made = outputs(graph, plan, layout, nms)
    for each in made:
        graph.add_output(each.value, each.name)
    facts = metadata(
        plan, description, layout=layout, batch=batch, nms=nms, half=half, dynamic=dynamic
    )
    first: int | str = "batch" if batch is None else batch
    channels, height, width = plan.source.shape.sides
    sides: Sides = (channels, "height", "width") if dynamic else (channels, height, width)
    source = Output(INPUT, sides, np.float32, _meaning(channels, description), INPUT)
    inputs = (_port(source, first),)
    ports = tuple(_port(each, first) for each in made)
    return Model(_content(graph, inputs, ports, facts), opset, inputs, ports, facts)


def _meaning(channels: int, description: Description | None) -> str:
    resized = f", pictures {_RESIZED[description.resize]}" if description else ""
    return f"{colours(channels)} from 0 to 1{resized}"


def _port(output: Output, batch: int | str) -> Port:
    kind = np.dtype(output.kind).name
    return Port(output.name, kind, (batch, *output.sides), output.meaning)


def _content(
    graph: GraphBuilder,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    facts: Mapping[str, str],
) -> bytes:
    onnx, model = graph.onnx, graph.model
    model.graph.name = "network"
    model.graph.node.extend(graph.nodes)
    model.graph.input.extend(_info(graph, each) for each in inputs)
    model.graph.output.extend(_info(graph, each) for each in outputs)
    model.opset_import.append(onnx.helper.make_opsetid("", graph.opset))
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    model.producer_name, model.producer_version = "engine", __version__
    onnx.helper.set_model_props(model, facts)
    content: bytes = model.SerializeToString()
    onnx.checker.check_model(content)
    return content


def _info(graph: GraphBuilder, port: Port) -> Any:
    helper = graph.onnx.helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(port.kind))
    info = helper.make_tensor_value_info(port.name, kind, port.sides)
    info.doc_string = port.meaning
    return info


def _checked_opset(opset: int | None, plan: Plan) -> int:
    if opset is None:
        return MISH_OPSET if any(map(_has_mish, plan.ops)) else MIN_OPSET
    newest = import_onnx().defs.onnx_opset_version()
    if not is_whole(opset) or not MIN_OPSET <= int(opset) <= newest:
        raise InputError(f"opset: expected {MIN_OPSET} to {newest}, got {opset!r}")
    return int(opset)


def _has_mish(op: Op) -> bool:
    return "mish" in (getattr(op, "activation", ""), getattr(op, "last_activation", ""))
