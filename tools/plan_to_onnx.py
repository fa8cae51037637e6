"""A plan as an ONNX model, for the networks that the CPU benchmark compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Constant, Op, Tensor
from engine.plan.shapes import Window

_OPSET = 13
_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "leaky": ("LeakyRelu", {"alpha": 0.1}),
    "relu": ("Relu", {}),
    "logistic": ("Sigmoid", {}),
}


class UnsupportedError(Exception):
    """The network has an op that this converter does not know."""


def convert(plan: Plan) -> bytes:
    """Serialise `plan` up to the inputs of its heads, batch norm folded, nothing else fused."""
    return _Writer(optimise(plan, ("fold_batchnorm", "fuse_activation"))).model()


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes: list[Any] = []
        self.values: dict[str, Any] = {}

    def model(self) -> bytes:
        decoded = [op for op in self.plan.ops if isinstance(op, ops.YoloOutput)]
        outputs = [op.src for op in decoded] or list(self.plan.outputs)
        for op in self.plan.ops:
            if op not in decoded:
                self._write(op)
        graph = helper.make_graph(
            self.nodes,
            "network",
            [_info(self.plan.source)],
            [_info(tensor) for tensor in outputs],
            list(self.values.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _write(self, op: Op) -> None:
        writer = _WRITERS.get(type(op))
        if writer is None:
            raise UnsupportedError(f"{type(op).__name__} has no ONNX form here")
        writer(self, op)

    def node(self, kind: str, inputs: list[str], out: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [out], **attributes))

    def constant(self, name: str, values: Any) -> str:
        if name not in self.values:
            self.values[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def plan_constant(self, constant: Constant) -> str:
        return self.constant(constant.name, self.plan.constants[constant.name])

    def activate(self, activation: str, name: str, out: str) -> None:
        if activation not in _ACTIVATIONS:
            raise UnsupportedError(f"the activation {activation} has no ONNX form here")
        kind, attributes = _ACTIVATIONS[activation]
        self.node(kind, [name], out, **attributes)


def _convolution(onto: _Writer, op: ops.Conv2d) -> None:
    if op.signed or op.pool or op.residual:
        raise UnsupportedError("a signed or fused convolution has no ONNX form here")
    out = _name(op.out)
    sums = out if op.activation == "linear" else f"{out}_sums"
    inputs = [_name(op.src), onto.plan_constant(op.weight)]
    if op.bias is not None:
        inputs.append(onto.plan_constant(op.bias))
    onto.node(
        "Conv",
        inputs,
        sums,
        kernel_shape=op.kernel,
        strides=op.stride,
        pads=op.padding,
        dilations=op.dilation,
        group=op.groups,
    )
    if op.activation != "linear":
        onto.activate(op.activation, sums, out)


def _activate(onto: _Writer, op: ops.Activate) -> None:
    onto.activate(op.activation, _name(op.src), _name(op.out))


def _max_pool(onto: _Writer, op: ops.MaxPool) -> None:
    window: Window = op.window
    onto.node(
        "MaxPool",
        [_name(op.src)],
        _name(op.out),
        kernel_shape=window.size,
        strides=window.stride,
        pads=_trimmed(op),
    )


def _trimmed(op: ops.MaxPool) -> tuple[int, int, int, int]:
    """The padding that the last windows reach: what is beyond makes ONNX count one more."""
    window = op.window
    top, left, _, _ = window.padding
    bottom = (op.out.shape.height - 1) * window.stride[0] + window.size[0]
    right = (op.out.shape.width - 1) * window.stride[1] + window.size[1]
    return (
        top,
        left,
        max(0, bottom - top - op.src.shape.height),
        max(0, right - left - op.src.shape.width),
    )


def _concat(onto: _Writer, op: ops.Concat) -> None:
    names = []
    for number, part in enumerate(sorted(op.parts, key=lambda part: part.at)):
        name = _name(part.src)
        if part.count != part.src.shape.channels:
            bounds = [
                onto.constant(f"{_name(op.out)}_{number}_{what}", np.array([value], np.int64))
                for what, value in (
                    ("first", part.first),
                    ("last", part.first + part.count),
                    ("axis", 1),
                )
            ]
            onto.node("Slice", [name, *bounds], f"{_name(op.out)}_{number}")
            name = f"{_name(op.out)}_{number}"
        names.append(name)
    onto.node("Concat", names, _name(op.out), axis=1)


def _upsample(onto: _Writer, op: ops.Upsample) -> None:
    if op.scale != 1:
        raise UnsupportedError("an upsample that scales values has no ONNX form here")
    scales = np.array([1, 1, op.stride, op.stride], np.float32)
    onto.node(
        "Resize",
        [_name(op.src), "", onto.constant(f"{_name(op.out)}_scales", scales)],
        _name(op.out),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def _add(onto: _Writer, op: ops.Add) -> None:
    equal = all(source.shape == op.out.shape for source in op.sources)
    if op.weights is not None or len(op.sources) != 2 or not equal:
        raise UnsupportedError("a weighted or uneven sum has no ONNX form here")
    out = _name(op.out)
    sums = out if op.activation == "linear" else f"{out}_sums"
    onto.node("Add", [_name(source) for source in op.sources], sums)
    if op.activation != "linear":
        onto.activate(op.activation, sums, out)


_WRITERS: dict[type[Op], Callable[[_Writer, Any], None]] = {
    ops.Conv2d: _convolution,
    ops.Activate: _activate,
    ops.MaxPool: _max_pool,
    ops.Concat: _concat,
    ops.Upsample: _upsample,
    ops.Add: _add,
}


def _name(tensor: Tensor) -> str:
    return f"t{tensor.index}"


def _info(tensor: Tensor) -> Any:
    return helper.make_tensor_value_info(_name(tensor), TensorProto.FLOAT, [1, *tensor.shape.sides])
