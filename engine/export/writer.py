"""Writer: collects the nodes and constants of an ONNX graph while a plan is written op by op."""

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

Write = Callable[["Writer", Any], str]  # returns the name of the value that it made
_Write = TypeVar("_Write", bound=Write)

INPUT = "images"
LEAST_OPSET = 13
AXES_ARE_INPUTS = 18  # of every reduction; before, of sums only

WRITERS: dict[type[Op] | type[Head], Write] = {}


def writes(*kinds: type[Op] | type[Head]) -> Callable[[_Write], _Write]:
    """Register the function that writes these ops; it returns the name of what it computed."""

    def register(write: _Write) -> _Write:
        WRITERS.update(dict.fromkeys(kinds, write))
        return write

    return register


class Writer:
    """`names` maps the tensors that were written so far to the values of the graph."""

    def __init__(self, plan: Plan, opset: int, titles: Sequence[str]) -> None:
        self.opset = opset
        self.onnx = load_onnx()
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.names: dict[Tensor, str] = {plan.source: INPUT}
        self._plan = plan
        self._titles = titles
        self._layer = 0

    def __getitem__(self, tensor: Tensor) -> str:
        return self.names[tensor]

    def write(self, op: Op) -> None:
        self._layer = self._plan.layer_of(op)
        if op.out.is_state or any(tensor.is_state for tensor in op.reads):
            self.refuse("a state that lives from run to run")
        if type(op) not in WRITERS:
            self.refuse(type(op).__name__)
        self.names[op.out] = WRITERS[type(op)](self, op)

    def write_head(self, head: Head) -> str:
        """The name of its rows, (batch, rows, columns)."""
        self._layer = self._plan.layers.index(head.src)
        return WRITERS[type(head)](self, head)

    def refuse(self, what: str) -> NoReturn:
        title = self._titles[self._layer]
        raise ConfigError(f"{title}: ONNX: expected what a model can hold, got {what}")

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

    def identity(self, value: str, name: str) -> None:
        """Give a value the name of an output."""
        self._add("Identity", [value], [name], {})

    def reshape(self, value: str, *sides: int) -> str:
        """0 keeps a side, -1 stands for the rest."""
        return self.node("Reshape", value, self.integers(sides))

    def shaped(self, value: str, shape: Shape) -> str:
        return self.reshape(value, 0, *shape.sides)

    def slice(self, value: str, first: int, end: int, axis: int) -> str:
        bounds = (self.integers([each]) for each in (first, end, axis))
        return self.node("Slice", value, *bounds)

    def pad(self, value: str, before: Sequence[int], after: Sequence[int], fill: float) -> str:
        return self.node("Pad", value, self.integers([*before, *after]), self.number(fill))

    def reduce(self, kind: str, value: str, axis: int) -> str:
        """Sum, Max … over an axis that stays with length 1."""
        if kind == "Sum" or self.opset >= AXES_ARE_INPUTS:
            return self.node(f"Reduce{kind}", value, self.integers([axis]), keepdims=1)
        return self.node(f"Reduce{kind}", value, axes=[axis], keepdims=1)

    def scaled(self, value: str, factor: float, shift: float = 0.0) -> str:
        """value * factor + shift, without what changes nothing."""
        if factor != 1:
            value = self.node("Mul", value, self.number(factor))
        return self.node("Add", value, self.number(shift)) if shift else value

    # ------------------------------------------------------------ constants

    def number(self, value: float) -> str:
        return self._initializer(f"number_{float(value)!r}", np.array(value, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        name = f"integers_{'_'.join(map(str, values))}"
        return self._initializer(name, np.array(values, np.int64))

    def array(self, values: Array) -> str:
        """A table that belongs to this layer alone."""
        return self._initializer(f"layer_{self._layer}/table_{len(self.initializers)}", values)

    def constant(self, constant: Constant) -> str:
        """An array of the plan."""
        return self._initializer(constant.name, self.values(constant))

    def values(self, constant: Constant) -> Array:
        return np.asarray(self._plan.constants[constant.name], np.float32)

    # ------------------------------------------------------------ inside

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


def load_onnx() -> Any:
    """The package, imported when somebody exports."""
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
