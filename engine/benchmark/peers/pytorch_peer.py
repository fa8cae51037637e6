"""PyTorch, in eager mode on the CPU and as a CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.arrays import Array
from engine.benchmark.peers import base
from engine.benchmark.peers.base import PeerUnavailable
from engine.benchmark.workload import Workload
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

_PASSES = ("fold_batchnorm", "fuse_activation")
_HALF = "float16"


def open_peer(workload: Workload, batch: int) -> base.RunPeer:
    torch = base.import_package("torch", "torch")
    base.require_precision(workload, "float32", "tf32", _HALF)
    device = workload.device.name if base.is_cuda(workload) else "cpu"
    if device != "cpu" and not torch.cuda.is_available():
        raise PeerUnavailable("this build has no CUDA")
    torch.set_num_threads(base.threads_of(workload))
    torch.backends.cuda.matmul.allow_tf32 = workload.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = workload.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    network = TorchNetwork(torch, prepare_plan(workload.plan), device, workload.precision)
    if device != "cpu":
        return network.graph_runner(workload.images(batch))
    network.run(workload.images(batch))  # raises PeerUnavailable for unsupported options
    return network.run


def prepare_plan(plan: Plan) -> Plan:
    """Fold batch normalization and fuse activations, which PyTorch does not do by itself."""
    return optimise(plan, _PASSES)


class TorchNetwork:
    """A plan whose ops are PyTorch functions."""

    def __init__(self, torch: Any, plan: Plan, device: str, precision: str) -> None:
        self._torch = torch
        self._plan = plan
        self._device = device
        self._dtype = torch.float16 if precision == _HALF else torch.float32
        missing = {type(op).__name__ for op in plan.ops if type(op) not in _OPS}
        missing |= {getattr(op, "activation", "linear") for op in plan.ops} - set(_ACTIVATIONS)
        if missing:
            raise PeerUnavailable(f"not implemented here: {', '.join(sorted(missing))}")
        self._constants = {name: self.to_device(each) for name, each in plan.constants.items()}

    def run(self, images: Array) -> object:
        with self._torch.inference_mode():
            outputs = self.forward(self.to_device(images))
            return [each.float().cpu().numpy() for each in outputs]

    def capture(self, source: Any) -> tuple[Any, list[Any]]:
        """Return a CUDA graph that reads `source`, and the outputs that it writes."""
        torch = self._torch
        with torch.inference_mode():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(3):
                    self.forward(source)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = self.forward(source)
        return graph, outputs

    def graph_runner(self, images: Array) -> base.RunPeer:
        torch = self._torch
        source = self.to_device(images)
        graph, outputs = self.capture(source)

        def run(images: Array) -> object:
            with torch.inference_mode():
                source.copy_(torch.from_numpy(images))
                graph.replay()
                return [each.float().cpu().numpy() for each in outputs]

        return run

    def forward(self, source: Any) -> list[Any]:
        """Run all ops on an input that to_device() returned."""
        values: dict[Tensor, Any] = {self._plan.source: source}
        for op in self._plan.ops:
            values[op.out] = _OPS[type(op)](self._torch, op, values, self._constants)
        return [values[tensor] for tensor in self._plan.outputs]

    def to_device(self, values: Array) -> Any:
        """Copy an array to the device; arrays of four axes get the faster channels-last layout."""
        copied = self._torch.from_numpy(values).to(self._device, self._dtype)
        if copied.ndim == 4:
            copied = copied.contiguous(memory_format=self._torch.channels_last)
        return copied


# In-place variants, because they are faster.
_ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda torch, x: x,
    "leaky": lambda torch, x: torch.nn.functional.leaky_relu(x, 0.1, inplace=True),
    "relu": lambda torch, x: torch.nn.functional.relu(x, inplace=True),
    "relu6": lambda torch, x: torch.nn.functional.relu6(x, inplace=True),
    "logistic": lambda torch, x: torch.sigmoid_(x),
    "swish": lambda torch, x: torch.nn.functional.silu(x, inplace=True),
    "mish": lambda torch, x: torch.nn.functional.mish(x, inplace=True),
    "tanh": lambda torch, x: torch.tanh_(x),
}

Values = dict[Tensor, Any]
Constants = dict[str, Any]


def _activated(torch: Any, op: Any, value: Any) -> Any:
    """Apply the activation in place; nothing else may read `value`."""
    return _ACTIVATIONS[op.activation](torch, value)


def _convolution(torch: Any, op: ops.Conv2d, at: Values, constants: Constants) -> Any:
    top, left, bottom, right = op.padding
    source = at[op.src]
    is_even = (top, left) == (bottom, right)
    if not is_even:
        source = torch.nn.functional.pad(source, (left, right, top, bottom))
    value = torch.nn.functional.conv2d(
        source,
        constants[op.weight.name],
        None if op.bias is None else constants[op.bias.name],
        stride=op.stride,
        padding=(top, left) if is_even else 0,
        dilation=op.dilation,
        groups=op.groups,
    )
    return _activated(torch, op, value)


def _dense(torch: Any, op: ops.MatMul, at: Values, constants: Constants) -> Any:
    bias = None if op.bias is None else constants[op.bias.name]
    flat = at[op.src].flatten(1)
    value = torch.nn.functional.linear(flat, constants[op.weight.name], bias)
    return _activated(torch, op, value).reshape(-1, *op.out.shape.sides)


def _activate(torch: Any, op: ops.Activate, at: Values, constants: Constants) -> Any:
    return _activated(torch, op, at[op.src].clone())


def _max_pool(torch: Any, op: ops.MaxPool, at: Values, constants: Constants) -> Any:
    window, src, out = op.window, op.src.shape, op.out.shape
    top, left, _, _ = window.padding
    bottom = (out.height - 1) * window.stride[0] + window.size[0] - top - src.height
    right = (out.width - 1) * window.stride[1] + window.size[1] - left - src.width
    value = at[op.src]
    if (top, left) == (bottom, right) and 2 * top <= window.size[0] and 2 * left <= window.size[1]:
        return torch.nn.functional.max_pool2d(value, window.size, window.stride, (top, left))
    value = torch.nn.functional.pad(value, (left, right, top, bottom), value=float("-inf"))
    return torch.nn.functional.max_pool2d(value, window.size, window.stride)


def _average_pool(torch: Any, op: ops.AveragePool, at: Values, constants: Constants) -> Any:
    if op.window.size != op.src.shape.sides[1:]:
        raise PeerUnavailable("not implemented here: local average pooling")
    return at[op.src].mean((2, 3), keepdim=True)


def _add(torch: Any, op: ops.Add, at: Values, constants: Constants) -> Any:
    if op.weights is not None:
        raise PeerUnavailable("not implemented here: weighted sums")
    first, second, *others = (_resized(torch, at[each], op) for each in op.sources)
    return _activated(torch, op, sum(others, start=first + second))


def _resized(torch: Any, value: Any, op: ops.Add) -> Any:
    """Return flat values, zero-padded or truncated to the size of the output."""
    shape = op.out.shape
    if tuple(value.shape[1:]) == shape.sides:
        return value
    flat = value.flatten(1)[:, : shape.size]
    flat = torch.nn.functional.pad(flat, (0, shape.size - flat.shape[1]))
    return flat.reshape(-1, *shape.sides)


def _multiply(torch: Any, op: ops.Multiply, at: Values, constants: Constants) -> Any:
    return _activated(torch, op, at[op.src] * at[op.factor])


def _concat(torch: Any, op: ops.Concat, at: Values, constants: Constants) -> Any:
    parts = sorted(op.parts, key=lambda part: part.at)
    return torch.cat([at[each.src][:, each.first : each.first + each.count] for each in parts], 1)


def _upsample(torch: Any, op: ops.Upsample, at: Values, constants: Constants) -> Any:
    value = torch.nn.functional.interpolate(at[op.src], scale_factor=op.stride, mode="nearest")
    return value * op.scale if op.scale != 1 else value


def _reshape(torch: Any, op: ops.Reshape, at: Values, constants: Constants) -> Any:
    return at[op.src].reshape(-1, *op.out.shape.sides)


def _softmax(torch: Any, op: ops.Softmax, at: Values, constants: Constants) -> Any:
    if len(op.runs) > 1:
        raise PeerUnavailable("not implemented here: a softmax of several lengths")
    value = at[op.src].flatten(1).unflatten(1, (-1, op.runs[0])) / op.temperature
    return value.softmax(2).reshape(-1, *op.out.shape.sides)


def _yolo_output(torch: Any, op: ops.YoloOutput, at: Values, constants: Constants) -> Any:
    if op.box != 4:
        raise PeerUnavailable("not implemented here: Gaussian boxes")
    value = at[op.src].unflatten(1, (op.anchors, 5 + op.classes))
    center, size, rest = value.split((2, 2, 1 + op.classes), 2)
    if not op.raw:
        center, rest = center.sigmoid(), rest.sigmoid()
    center = center * op.scale_x_y - (op.scale_x_y - 1) / 2
    return torch.cat([center, size, rest], 2).flatten(1, 2)


_OPS: dict[type[Op], Callable[[Any, Any, Values, Constants], Any]] = {
    ops.Conv2d: _convolution,
    ops.MatMul: _dense,
    ops.Activate: _activate,
    ops.MaxPool: _max_pool,
    ops.AveragePool: _average_pool,
    ops.Add: _add,
    ops.Multiply: _multiply,
    ops.Concat: _concat,
    ops.Upsample: _upsample,
    ops.Reshape: _reshape,
    ops.Softmax: _softmax,
    ops.YoloOutput: _yolo_output,
}
