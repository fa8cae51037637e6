"""A plan as an ONNX model: any batch, outputs as Program.forward has them, or boxes decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import InputError
from engine.export import heads, moving, products, values, windows  # noqa: F401  each registers what it writes
from engine.export.activations import MISH_OPSET
from engine.export.writer import INPUT, LEAST_OPSET, Writer, load_onnx
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op

DETECTIONS = "detections"
PASSES = ("fold_batchnorm", "fuse_activation")  # what a plan may have been through

_MOST_BYTES = (1 << 31) - (1 << 20)  # of a protobuf, with some room for all but the weights


def serialise(
    plan: Plan,
    titles: Sequence[str],
    *,
    opset: int | None = None,
    batch: int | None = None,
    decode: bool = False,
) -> bytes:
    """The bytes of a .onnx file.

    titles  what messages call each layer
    opset   the lowest that has a node for every activation, unless given
    batch   any, unless given
    decode  one output `detections`, (batch, rows, 5 + classes): the columns of `ops.Head`, nothing
            dropped. Otherwise `layer_N`, as the detection layers put them out
    """
    opset = _checked_opset(opset, plan)
    if decode and not plan.heads:
        raise InputError("decode: expected a network with a detection layer, got none")
    size = sum(array.nbytes for array in plan.constants.values())
    if size > _MOST_BYTES:
        raise InputError(f"ONNX: expected at most 2 GiB of weights, got {size / 2**30:.1f} GiB")
    onto = Writer(plan, opset, titles)
    for op in plan.ops:
        onto.write(op)
    outputs = [_decoded(onto, plan, batch)] if decode else _raw(onto, plan, batch)
    return _model(onto, plan, outputs, batch)


def _raw(onto: Writer, plan: Plan, batch: int | None) -> list[Any]:
    outputs = []
    for tensor in plan.outputs:
        name = f"layer_{plan.layers.index(tensor)}"
        onto.identity(onto[tensor], name)
        outputs.append(_info(onto, name, (batch, *tensor.shape.sides)))
    return outputs


def _decoded(onto: Writer, plan: Plan, batch: int | None) -> Any:
    """Heads one behind the other; classes that a head does not know score zero."""
    classes = max(head.classes for head in plan.heads)
    parts = []
    for head in plan.heads:
        rows = onto.write_head(head)
        missing = classes - head.classes
        parts.append(onto.pad(rows, (0, 0, 0), (0, 0, missing), 0) if missing else rows)
    rows = parts[0] if len(parts) == 1 else onto.node("Concat", *parts, axis=1)
    onto.identity(rows, DETECTIONS)
    count = sum(_row_count(head) for head in plan.heads)
    return _info(onto, DETECTIONS, (batch, count, 5 + classes))


def _row_count(head: ops.Head) -> int:
    if isinstance(head, ops.GridHead):
        return head.side**2 * head.boxes
    if isinstance(head, ops.RegionHead):
        return head.grid[0] * head.grid[1] * len(head.anchors)
    assert isinstance(head, ops.YoloHead), head
    return head.src.shape.area * len(head.anchors)


def _model(onto: Writer, plan: Plan, outputs: Sequence[Any], batch: int | None) -> bytes:
    onnx = onto.onnx
    graph = onnx.helper.make_graph(
        onto.nodes,
        "network",
        [_info(onto, INPUT, (batch, *plan.source.shape.sides))],
        outputs,
        list(onto.initializers.values()),
    )
    imports = [onnx.helper.make_opsetid("", onto.opset)]
    model = onnx.helper.make_model(
        graph,
        opset_imports=imports,
        producer_name="engine",
        ir_version=onnx.helper.find_min_ir_version_for(imports),
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _info(onto: Writer, name: str, sides: tuple[int | None, ...]) -> Any:
    shape = ["batch" if side is None else side for side in sides]
    helper = onto.onnx.helper
    return helper.make_tensor_value_info(name, onto.onnx.TensorProto.FLOAT, shape)


def _checked_opset(opset: int | None, plan: Plan) -> int:
    if opset is None:
        return MISH_OPSET if any(map(_has_mish, plan.ops)) else LEAST_OPSET
    newest = load_onnx().defs.onnx_opset_version()
    if not LEAST_OPSET <= opset <= newest:
        raise InputError(f"opset: expected {LEAST_OPSET} to {newest}, got {opset}")
    return opset


def _has_mish(op: Op) -> bool:
    return "mish" in (getattr(op, "activation", ""), getattr(op, "last_activation", ""))
