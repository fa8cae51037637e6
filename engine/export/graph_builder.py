"""Builder of an ONNX graph from a plan, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NoReturn, TypeVar

import numpy as np

from engine import extras
from engine.arrays import Array
from engine.errors import ConfigError, InputError
from engine.plan.build import Plan
from engine.plan.ops import (
    Activate,
    Add,
    Concat,
    Constant,
    Conv2d,
    L2Norm,
    LocalNorm,
    MaxPool,
    Multiply,
    Normalise,
    NormaliseChannels,
    Op,
    Tensor,
)
from engine.plan.shapes import Shape

Exporter = Callable[["GraphBuilder", Any], str]  # returns the name of its output value
_Exporter = TypeVar("_Exporter", bound=Exporter)

INPUT = "images"
MIN_OPSET = 13
REDUCE_AXES_OPSET = 18  # since then, axes are an input of every reduction, not only of ReduceSum

_KEEP_SIZE = (Activate, Add, Concat, L2Norm, LocalNorm, Multiply, Normalise, NormaliseChannels)

EXPORTERS: dict[type[Op], Exporter] = {}
_IN_FLOAT32: set[type[Op]] = set()  # computed in float32 even in a float16 model

_Real = type[np.float32] | type[np.float16]


def exports(*kinds: type[Op], in_float32: bool = False) -> Callable[[_Exporter], _Exporter]:
    """Register the decorated function as the exporter of these ops.

    With `in_float32` a float16 model computes them in float32, because the precision or the range
    of float16 does not suffice.
    """

    def register(exporter: _Exporter) -> _Exporter:
        EXPORTERS.update(dict.fromkeys(kinds, exporter))
        if in_float32:
            _IN_FLOAT32.update(kinds)
        return exporter

    return register


def _keeps_size(op: Op) -> bool:
    """Return whether the output has the height and width of the first tensor, whatever they are."""
    if isinstance(op, Conv2d):
        window, stride, dilation = op.kernel, op.stride, op.dilation
        padding = op.padding
    elif isinstance(op, MaxPool):
        window, stride, dilation = op.window.size, op.window.stride, (1, 1)
        padding = op.window.padding
    else:
        return isinstance(op, _KEEP_SIZE)
    reach = tuple((size - 1) * step for size, step in zip(window, dilation, strict=True))
    return stride == (1, 1) and reach == (padding[0] + padding[2], padding[1] + padding[3])


class GraphBuilder:
    """The nodes and constants of a graph, and the values of the tensors that were exported.

    half     whether activations and weights are float16; the input and all outputs stay float32
    dynamic  whether height and width of the input may change from run to run
    """

    def __init__(
        self,
        plan: Plan,
        opset: int,
        titles: Sequence[str],
        *,
        half: bool = False,
        dynamic: bool = False,
    ) -> None:
        self.opset = opset
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.model = self.onnx.ModelProto()  # holds the constants directly, as they are large
        self._constants: set[str] = set()
        self._plan = plan
        self._titles = titles
        self._layer = 0
        self._numbers = count()  # shared with subgraphs, because names must be unique
        self._half = half
        self._real: _Real = np.float32  # the type of the values and constants of the current op
        self._values: dict[Tensor, dict[_Real, str]] = {plan.source: {np.float32: INPUT}}
        self._varying = {plan.source} if dynamic else set()
        self._size_givers: dict[Tensor, Tensor] = {}  # maps whose size others share
        self._sides: dict[tuple[Tensor, int], str] = {}

    def __getitem__(self, tensor: Tensor) -> str:
        """Return the name of a tensor's value in the type of the current op."""
        forms = self._values[tensor]
        if self._real not in forms:
            (value,) = forms.values()
            forms[self._real] = self.cast(value, self._real)
        return forms[self._real]

    def add(self, op: Op) -> None:
        self._layer = self._plan.layer_of(op)
        if op.out.is_state or any(tensor.is_state for tensor in op.reads):
            self.reject("state that persists between runs")
        if type(op) not in EXPORTERS:
            self.reject("several time steps" if self._plan.steps > 1 else type(op).__name__)
        if any(map(self.varies, op.reads)):
            self._varying.add(op.out)
            if _keeps_size(op):
                self._size_givers[op.out] = self._size_giver(op.reads[0])
        self._real = np.float16 if self._half and type(op) not in _IN_FLOAT32 else np.float32
        self._values[op.out] = {self._real: EXPORTERS[type(op)](self, op)}
        self._real = np.float32

    @property
    def title(self) -> str:
        """The name of the current layer as messages show it."""
        return self._titles[self._layer]

    def begin_layer_of(self, tensor: Tensor) -> None:
        """Name the nodes and errors that follow after the layer with this output."""
        self._layer = self._plan.layers.index(tensor)

    def reject(self, what: str) -> NoReturn:
        """Raise a ConfigError that names the current layer."""
        raise ConfigError(f"{self.title}: ONNX: expected an op that can be exported, got {what}")

    # ------------------------------------------------------------ heights and widths

    @property
    def source(self) -> Tensor:
        return self._plan.source

    def varies(self, tensor: Tensor) -> bool:
        """Whether height and width of a tensor change with those of the input."""
        return tensor in self._varying

    def mark_fixed(self, tensor: Tensor) -> None:
        """Declare that the current op's output has one size, whatever its sources have."""
        self._varying.discard(tensor)

    def have_equal_sizes(self, first: Tensor, second: Tensor) -> bool:
        """Whether two maps are known to have the same height and width in every run.

        At the exported size alone they may be equal by chance: 1 x 1 after different strides.
        """
        if not (self.varies(first) or self.varies(second)):
            return True  # every run has the sizes of the plan
        return self._size_giver(first) == self._size_giver(second)

    def _size_giver(self, tensor: Tensor) -> Tensor:
        """Return the earliest tensor that is known to have the height and width of this one."""
        return self._size_givers.get(tensor, tensor)

    def require_fixed(self, what: str, *tensors: Tensor) -> None:
        """Raise a ConfigError that names the current layer if a tensor's size may change."""
        if any(map(self.varies, tensors)):
            raise ConfigError(
                f"{self.title}: ONNX: dynamic: expected a layer for maps of any size, got {what}. "
                "Export with a fixed size, or from a larger one"
            )

    def require_float32(self, what: str) -> None:
        """Raise a ConfigError that names the current layer if the model is float16."""
        if self._half:
            raise ConfigError(
                f"{self.title}: ONNX: half: expected values that may be rounded, got {what}. "
                "Export in float32"
            )

    def side(self, tensor: Tensor, axis: int, extent: int | None = None) -> int | str:
        """Return height (axis 2) or width (axis 3) of a map: a number, or an int64 value (1,).

        With `extent` it is the side of another map, which has this extent at the exported size.
        """
        own = tensor.shape.sides[axis - 1]
        if not self.varies(tensor):
            return own if extent is None else extent
        key = tensor, axis
        if key not in self._sides:
            (value, *_) = self._values[tensor].values()
            self._sides[key] = self.slice(self.node("Shape", value), axis, axis + 1, 0)
        side = self._sides[key]
        if extent is None or extent == own:
            return side
        if extent > own:
            return self.node("Mul", side, self.integers([extent // own]))
        return self.node("Div", side, self.integers([own // extent]))

    def area(self, tensor: Tensor) -> int:
        """Return height * width of a map for a reshape: -1 if it is to be inferred."""
        return -1 if self.varies(tensor) else tensor.shape.area

    def reshape_map(self, value: str, shape: Shape, src: Tensor) -> str:
        """Reshape every row to `shape`, whose sides are those of `src`, multiplied or divided."""
        width = -1 if self.varies(src) else shape.width
        return self.reshape(value, 0, shape.channels, self.side(src, 2, shape.height), width)

    # ------------------------------------------------------------ nodes

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its only output."""
        (out,) = self.node_with_outputs(kind, 1, *inputs, **attributes)
        return out

    def node_with_outputs(
        self, kind: str, outputs: int, *inputs: str, **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs; return their names."""
        name = f"layer_{self._layer}/{kind}_{next(self._numbers)}"
        outs = [name] if outputs == 1 else [f"{name}_{number}" for number in range(outputs)]
        self._add(kind, inputs, outs, attributes)
        return outs

    def split(self, value: str, lengths: Sequence[int], axis: int) -> list[str]:
        bounds = self.integers(lengths)
        return self.node_with_outputs("Split", len(lengths), value, bounds, axis=axis)

    def add_output(self, value: str, name: str) -> None:
        """Make a value an output of the graph."""
        self._add("Identity", [value], [name], {})

    def cast(self, value: str, kind: type[np.generic]) -> str:
        return self.node(
            "Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        )

    def fixpoint(self, start: str, step: Callable[[str], str], sides: Sequence[str | None]) -> str:
        """Apply `step` to a boolean array until nothing changes; return the last array."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        name = f"layer_{self._layer}/loop_{next(self._numbers)}"
        before, changed, after = (f"{name}/{each}" for each in ("before", "changed", "after"))
        with self._subgraph() as nodes:
            made = step(before)
            differs = self.cast(self.node("Xor", made, before), np.float32)
            total = self.node("ReduceSum", differs, keepdims=0)
            self._add("Greater", [total, self.number(0)], [changed], {})
            self._add("Identity", [made], [after], {})
        infos = [
            helper.make_tensor_value_info(f"{name}/count", kinds.INT64, []),
            helper.make_tensor_value_info(f"{name}/go_on", kinds.BOOL, []),
            helper.make_tensor_value_info(before, kinds.BOOL, sides),
            helper.make_tensor_value_info(changed, kinds.BOOL, []),
            helper.make_tensor_value_info(after, kinds.BOOL, sides),
        ]
        body = helper.make_graph(nodes, name, infos[:3], infos[3:])
        yes = self._initializer("true", np.array(True))
        return self.node("Loop", "", yes, start, body=body)

    @contextmanager
    def _subgraph(self) -> Iterator[list[Any]]:
        """Collect the nodes added inside the block; constants still go to the main graph."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def reshape(self, value: str, *sides: int | str) -> str:
        """Reshape a value; 0 keeps a side, -1 infers it, and a name refers to an int64 value."""
        return self.node("Reshape", value, self.joined(sides))

    def joined(self, sides: Sequence[int | str]) -> str:
        """Concatenate numbers and int64 values of shape (1,) into one value."""
        numbers = [each for each in sides if not isinstance(each, str)]
        if len(numbers) == len(sides):
            return self.integers(numbers)
        parts = [each if isinstance(each, str) else self.integers([each]) for each in sides]
        if len(parts) == 1:
            return parts[0]
        return self.node("Concat", *parts, axis=0)

    def reshape_to(self, value: str, shape: Shape) -> str:
        """Reshape every row of a value to `shape`."""
        return self.reshape(value, 0, *shape.sides)

    def slice(self, value: str, first: int, end: int, axis: int) -> str:
        bounds = (self.integers([each]) for each in (first, end, axis))
        return self.node("Slice", value, *bounds)

    def pad(self, value: str, before: Sequence[int], after: Sequence[int], fill: float) -> str:
        return self.node("Pad", value, self.integers([*before, *after]), self.number(fill))

    def reduce(self, kind: str, value: str, axis: int) -> str:
        """Reduce an axis by "Sum", "Max" and so on, keeping it with length 1."""
        if kind == "Sum" or self.opset >= REDUCE_AXES_OPSET:
            return self.node(f"Reduce{kind}", value, self.integers([axis]), keepdims=1)
        return self.node(f"Reduce{kind}", value, axes=[axis], keepdims=1)

    def scale(self, value: str, factor: float, shift: float = 0.0) -> str:
        """Return value * factor + shift, omitting nodes that would change nothing."""
        if factor != 1:
            value = self.node("Mul", value, self.number(factor))
        return self.node("Add", value, self.number(shift)) if shift else value

    # ------------------------------------------------------------ constants

    def number(self, value: float) -> str:
        """Return a constant number; values beyond float16's range become its largest."""
        limit = np.finfo(self._real).max
        values = np.array(np.clip(value, -limit, limit), self._real)
        return self._initializer(f"number_{float(value)!r}{self._suffix}", values)

    def integers(self, values: Sequence[int]) -> str:
        name = f"integers_{'_'.join(map(str, values))}"
        return self._initializer(name, np.array(values, np.int64))

    def whole(self, value: int) -> str:
        """Return a constant integer without dimensions."""
        return self._initializer(f"whole_{value}", np.array(value, np.int64))

    def table(self, values: Array) -> str:
        """Return the name of a new constant of the current layer, in the type of the op."""
        name = f"layer_{self._layer}/table_{len(self._constants)}"
        return self._initializer(name, self._converted(values))

    def factors(self, values: Sequence[float]) -> str:
        """Return constant factors of Resize, which are float32 in every model."""
        name = f"factors_{'_'.join(f'{each:g}' for each in values)}"
        return self._initializer(name, np.array(values, np.float32))

    def constant(self, constant: Constant) -> str:
        """Return the name of a constant of the plan, in the type of the op."""
        name = f"{constant.name}{self._suffix}"
        if name in self._constants:
            return name
        return self._initializer(name, self._converted(self.constant_values(constant)))

    def constant_values(self, constant: Constant) -> Array:
        return np.asarray(self._plan.constants[constant.name], np.float32)

    # ------------------------------------------------------------ internals

    @property
    def _suffix(self) -> str:
        return " in float16" if self._real is np.float16 else ""

    def _converted(self, values: Array) -> Array:
        with np.errstate(over="ignore"):
            made: Array = values.astype(self._real)
        if not np.isfinite(made).all() and np.isfinite(values).all():
            most = np.abs(values).max()
            raise ConfigError(
                f"{self.title}: ONNX: half: expected weights of at most 65504, the largest number "
                f"of float16, got {most:.6g}. Export in float32"
            )
        return made

    def _add(
        self, kind: str, inputs: Sequence[str], outs: list[str], attributes: dict[str, Any]
    ) -> None:
        name = f"layer_{self._layer}/{next(self._numbers)}"
        make = self.onnx.helper.make_node
        self.nodes.append(make(kind, list(inputs), outs, name=name, **attributes))

    def _initializer(self, name: str, values: Array) -> str:
        if name not in self._constants:
            tensor = self.onnx.numpy_helper.from_array(np.asarray(values, order="C"), name)
            self.model.graph.initializer.append(tensor)
            self._constants.add(name)
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
