"""Builder of an ONNX graph from a plan, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from engine import extras
from engine.arrays import Array
from engine.errors import ConfigError, InputError
from engine.plan.build import Plan
from engine.plan.ops import Constant, Head, Op, Tensor
from engine.plan.shapes import Shape

Exporter = Callable[["GraphBuilder", Any], str]  # returns the name of its output value
_Exporter = TypeVar("_Exporter", bound=Exporter)

INPUT = "images"
MIN_OPSET = 13
REDUCE_AXES_OPSET = 18  # axes are an input of every reduction; before, only of ReduceSum

EXPORTERS: dict[type[Op] | type[Head], Exporter] = {}


def exports(*kinds: type[Op] | type[Head]) -> Callable[[_Exporter], _Exporter]:
    """Register the decorated function as the exporter of these ops."""

    def register(exporter: _Exporter) -> _Exporter:
        EXPORTERS.update(dict.fromkeys(kinds, exporter))
        return exporter

    return register


class GraphBuilder:
    """The nodes and constants of a graph; `names` maps exported tensors to its values."""

    def __init__(self, plan: Plan, opset: int, titles: Sequence[str]) -> None:
        self.opset = opset
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.names: dict[Tensor, str] = {plan.source: INPUT}
        self._plan = plan
        self._titles = titles
        self._layer = 0

    def __getitem__(self, tensor: Tensor) -> str:
        return self.names[tensor]

    def add(self, op: Op) -> None:
        self._layer = self._plan.layer_of(op)
        if op.out.is_state or any(tensor.is_state for tensor in op.reads):
            self.reject("state that persists between runs")
        if type(op) not in EXPORTERS:
            self.reject(type(op).__name__)
        self.names[op.out] = EXPORTERS[type(op)](self, op)

    def add_head(self, head: Head) -> str:
        """Export a head; return the name of its rows, (batch, rows, columns)."""
        self._layer = self._plan.layers.index(head.src)
        return EXPORTERS[type(head)](self, head)

    def reject(self, what: str) -> NoReturn:
        """Raise a ConfigError that names the current layer."""
        title = self._titles[self._layer]
        raise ConfigError(f"{title}: ONNX: expected an op that can be exported, got {what}")

    # ------------------------------------------------------------ nodes

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its only output."""
        out = f"layer_{self._layer}/{kind}_{len(self.nodes)}"
        self._add(kind, inputs, [out], attributes)
        return out

    def split(self, value: str, lengths: Sequence[int], axis: int) -> list[str]:
        first = f"layer_{self._layer}/Split_{len(self.nodes)}"
        outs = [f"{first}_{number}" for number in range(len(lengths))]
        self._add("Split", [value, self.integers(lengths)], outs, {"axis": axis})
        return outs

    def add_output(self, value: str, name: str) -> None:
        """Make a value an output of the graph."""
        self._add("Identity", [value], [name], {})

    def reshape(self, value: str, *sides: int) -> str:
        """Reshape a value; 0 keeps a side, -1 is inferred."""
        return self.node("Reshape", value, self.integers(sides))

    def reshape_to(self, value: str, shape: Shape) -> str:
        """Reshape every row of a value to `shape`."""
        return self.reshape(value, 0, *shape.sides)

    def slice(self, value: str, first: int, end: int, axis: int) -> str:
        bounds = (self.integers([each]) for each in (first, end, axis))
        return self.node("Slice", value, *bounds)

    def pad(self, value: str, before: Sequence[int], after: Sequence[int], fill: float) -> str:
        return self.node("Pad", value, self.integers([*before, *after]), self.number(fill))

    def reduce(self, kind: str, value: str, axis: int) -> str:
        """Reduce an axis, which is kept with length 1, by "Sum", "Max" and so on."""
        if kind == "Sum" or self.opset >= REDUCE_AXES_OPSET:
            return self.node(f"Reduce{kind}", value, self.integers([axis]), keepdims=1)
        return self.node(f"Reduce{kind}", value, axes=[axis], keepdims=1)

    def scale(self, value: str, factor: float, shift: float = 0.0) -> str:
        """Return value * factor + shift, without nodes that would change nothing."""
        if factor != 1:
            value = self.node("Mul", value, self.number(factor))
        return self.node("Add", value, self.number(shift)) if shift else value

    # ------------------------------------------------------------ constants

    def number(self, value: float) -> str:
        return self._initializer(f"number_{float(value)!r}", np.array(value, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        name = f"integers_{'_'.join(map(str, values))}"
        return self._initializer(name, np.array(values, np.int64))

    def table(self, values: Array) -> str:
        """Return the name of a new constant of the current layer."""
        return self._initializer(f"layer_{self._layer}/table_{len(self.initializers)}", values)

    def constant(self, constant: Constant) -> str:
        """Return the name of a constant of the plan."""
        return self._initializer(constant.name, self.constant_values(constant))

    def constant_values(self, constant: Constant) -> Array:
        return np.asarray(self._plan.constants[constant.name], np.float32)

    # ------------------------------------------------------------ internals

    def _add(
        self, kind: str, inputs: Sequence[str], outs: list[str], attributes: dict[str, Any]
    ) -> None:
        name = f"layer_{self._layer}/{len(self.nodes)}"
        make = self.onnx.helper.make_node
        self.nodes.append(make(kind, list(inputs), outs, name=name, **attributes))

    def _initializer(self, name: str, values: Array) -> str:
        if name not in self.initializers:
            tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name)
            self.initializers[name] = tensor
        return name


def import_onnx() -> Any:
    """Import the package onnx, or raise an InputError that says how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ModuleNotFoundError as error:
        raise InputError(
            f"onnx: {error.name} is not installed. Run: {extras.command('onnx')}"
        ) from None
    return onnx
