"""Serialize a plan as an ONNX model, with raw outputs or decoded boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import InputError
from engine.export import (  # noqa: F401  each registers exporters
    data_movement,
    elementwise,
    heads,
    linear,
    pooling,
)
from engine.export.activations import MISH_OPSET
from engine.export.graph_builder import INPUT, MIN_OPSET, GraphBuilder, import_onnx
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op

DETECTIONS = "detections"
PASSES = ("fold_batchnorm", "fuse_activation")  # the passes whose ops can be exported

_MAX_WEIGHT_BYTES = (1 << 31) - (1 << 20)  # a protobuf has at most 2 GiB, graph included


def serialize(
    plan: Plan,
    titles: Sequence[str],
    *,
    opset: int | None = None,
    batch: int | None = None,
    decode: bool = False,
) -> bytes:
    """Return the bytes of an .onnx file.

    titles  the names of the layers for error messages
    opset   default: the lowest with a node for every activation
    batch   default: any batch size
    decode  whether to have one output `detections`, (batch, rows, 5 + classes), with the columns of
            `ops.Head` and all rows. Otherwise there is an output `layer_N` for each detection layer
    """
    opset = _checked_opset(opset, plan)
    if decode and not plan.heads:
        raise InputError("decode: expected a network with a detection layer, got none")
    size = sum(array.nbytes for array in plan.constants.values())
    if size > _MAX_WEIGHT_BYTES:
        raise InputError(f"ONNX: expected at most 2 GiB of weights, got {size / 2**30:.1f} GiB")
    graph = GraphBuilder(plan, opset, titles)
    for op in plan.ops:
        graph.add(op)
    outputs = [_decoded_output(graph, plan, batch)] if decode else _raw_outputs(graph, plan, batch)
    return _model(graph, plan, outputs, batch)


def _raw_outputs(graph: GraphBuilder, plan: Plan, batch: int | None) -> list[Any]:
    outputs = []
    for tensor in plan.outputs:
        name = f"layer_{plan.layers.index(tensor)}"
        graph.add_output(graph[tensor], name)
        outputs.append(_info(graph, name, (batch, *tensor.shape.sides)))
    return outputs


def _decoded_output(graph: GraphBuilder, plan: Plan, batch: int | None) -> Any:
    """Concatenate the rows of all heads; classes that a head does not have score zero."""
    classes = max(head.classes for head in plan.heads)
    parts = []
    for head in plan.heads:
        rows = graph.add_head(head)
        missing = classes - head.classes
        parts.append(graph.pad(rows, (0, 0, 0), (0, 0, missing), 0) if missing else rows)
    rows = parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=1)
    graph.add_output(rows, DETECTIONS)
    count = sum(_row_count(head) for head in plan.heads)
    return _info(graph, DETECTIONS, (batch, count, 5 + classes))


def _row_count(head: ops.Head) -> int:
    if isinstance(head, ops.GridHead):
        return head.side**2 * head.boxes
    if isinstance(head, ops.RegionHead):
        return head.grid[0] * head.grid[1] * len(head.anchors)
    assert isinstance(head, ops.YoloHead), head
    return head.src.shape.area * len(head.anchors)


def _model(graph: GraphBuilder, plan: Plan, outputs: Sequence[Any], batch: int | None) -> bytes:
    onnx = graph.onnx
    graph_proto = onnx.helper.make_graph(
        graph.nodes,
        "network",
        [_info(graph, INPUT, (batch, *plan.source.shape.sides))],
        outputs,
        list(graph.initializers.values()),
    )
    imports = [onnx.helper.make_opsetid("", graph.opset)]
    model = onnx.helper.make_model(
        graph_proto,
        opset_imports=imports,
        producer_name="engine",
        ir_version=onnx.helper.find_min_ir_version_for(imports),
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _info(graph: GraphBuilder, name: str, sides: tuple[int | None, ...]) -> Any:
    shape = ["batch" if side is None else side for side in sides]
    helper = graph.onnx.helper
    return helper.make_tensor_value_info(name, graph.onnx.TensorProto.FLOAT, shape)


def _checked_opset(opset: int | None, plan: Plan) -> int:
    if opset is None:
        return MISH_OPSET if any(map(_has_mish, plan.ops)) else MIN_OPSET
    newest = import_onnx().defs.onnx_opset_version()
    if not MIN_OPSET <= opset <= newest:
        raise InputError(f"opset: expected {MIN_OPSET} to {newest}, got {opset}")
    return opset


def _has_mish(op: Op) -> bool:
    return "mish" in (getattr(op, "activation", ""), getattr(op, "last_activation", ""))
