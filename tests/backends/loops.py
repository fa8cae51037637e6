"""A second definition of every op and activation: float64 loops after the equations of plan/ops.py.

A loop takes the op and `read`, which returns the values of a tensor, (rows, channels, height,
width), or of a constant, in its own shape. It returns the values of op.out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan import ops
from tests.backends.cases import Case

Array = NDArray[Any]
Read = Callable[[Any], Array]

LOWEST = -float(np.finfo(np.float32).max)


def cells(values: Array) -> list[tuple[int, ...]]:
    return list(np.ndindex(*values.shape))


def inside(values: Array, y: int, x: int) -> bool:
    return 0 <= y < values.shape[-2] and 0 <= x < values.shape[-1]


def empty(op: ops.Op, rows: int) -> Array:
    return np.zeros((rows, *op.out.shape.sides))


# ---------------------------------------------------------------- activations


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    if x > 20:
        return x
    return math.exp(x) if x < -20 else math.log(1 + math.exp(x))


def stair(x: float) -> float:
    floor = math.floor(x)
    return math.floor(x / 2) if floor % 2 == 0 else (x - floor) + math.floor(x / 2)


def elu(x: float) -> float:
    return x if x >= 0 else math.exp(x) - 1


def plse(x: float) -> float:
    if x < -4:
        return 0.01 * (x + 4)
    return 0.01 * (x - 4) + 1 if x > 4 else 0.125 * x + 0.5


def lhtan(x: float) -> float:
    if x < 0:
        return 0.001 * x
    return 0.001 * (x - 1) + 1 if x > 1 else x


def hard_mish(x: float) -> float:
    if x > 0:
        return x
    return x * x / 2 + x if x > -2 else 0


FORMULAS: Mapping[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "leaky": lambda x: x if x > 0 else 0.1 * x,
    "relu": lambda x: max(x, 0),
    "relu6": lambda x: min(max(x, 0), 6),
    "relie": lambda x: x if x > 0 else 0.01 * x,
    "ramp": lambda x: x * (x > 0) + 0.1 * x,
    "revleaky": lambda x: x if x > 0 else 0.1 * x,
    "logistic": logistic,
    "loggy": lambda x: 2 * logistic(x) - 1,
    "tanh": math.tanh,
    "swish": lambda x: x * logistic(x),
    "mish": lambda x: x * math.tanh(softplus(x)),
    "hard_mish": hard_mish,
    "gelu": lambda x: 0.5 * x * (1 + math.tanh(0.797885 * x + 0.035677 * x**3)),
    "elu": elu,
    "selu": lambda x: 1.0507 * (x if x >= 0 else 1.6732 * (math.exp(x) - 1)),
    "plse": plse,
    "stair": stair,
    "hardtan": lambda x: min(max(x, -1), 1),
    "lhtan": lhtan,
}


def activated(name: str, values: Array) -> Array:
    return np.array([FORMULAS[name](float(x)) for x in values.flat]).reshape(values.shape)


# ---------------------------------------------------------------- sums of products


def conv2d(op: ops.Conv2d, read: Read) -> Array:
    src, weight = read(op.src), read(op.weight)
    if op.signed:
        src = np.where(src > 0, 1.0, -1.0)
    outside = -1.0 if op.signed else 0.0
    filters, depth, height, width = weight.shape
    grid = np.zeros((len(src), *op.grid.sides))
    src_height, src_width = src.shape[-2:]
    biases = [0.0] * filters if op.bias is None else read(op.bias).tolist()
    rows, factors = src.tolist(), weight.tolist()  # lists are faster to index than arrays
    for row, n, y, x in cells(grid):
        first = n // (filters // op.groups) * depth
        total = biases[n]
        for c in range(depth):
            for i in range(height):
                at_y = y * op.stride[0] + i * op.dilation[0] - op.padding[0]
                for j in range(width):
                    at_x = x * op.stride[1] + j * op.dilation[1] - op.padding[1]
                    is_inside = 0 <= at_y < src_height and 0 <= at_x < src_width
                    value = rows[row][first + c][at_y][at_x] if is_inside else outside
                    total += factors[n][c][i][j] * value
        grid[row, n, y, x] = total
    result = activated(op.activation, grid)
    if op.pool is not None:
        result = windows(result, empty(op, len(src)), op.pool, max, LOWEST)
    if op.residual is not None:
        result = result + read(op.residual)
    result = activated(op.last_activation, result)
    if op.upsample is not None:
        return upsample(op.upsample, lambda _: result)
    return result if op.yolo is None else yolo_output(op.yolo, lambda _: result)


def chain(op: ops.Chain, read: Read) -> Array:
    made: dict[Any, Array] = {}
    for link in op.links:
        made[link.out] = conv2d(link, lambda item: made[item] if item in made else read(item))
    return made[op.out]


def deconv2d(op: ops.Deconv2d, read: Read) -> Array:
    src, weight = read(op.src), read(op.weight)
    out = empty(op, len(src))
    for row, c, y, x in cells(src):
        for n, i, j in np.ndindex(weight.shape[1:]):
            to_y, to_x = y * op.stride + i - op.padding, x * op.stride + j - op.padding
            if inside(out, to_y, to_x):
                out[row, n, to_y, to_x] += weight[c, n, i, j] * src[row, c, y, x]
    return out if op.bias is None else out + read(op.bias)[:, None, None]


def local_conv2d(op: ops.LocalConv2d, read: Read) -> Array:
    src, weight = read(op.src), read(op.weight)
    out = empty(op, len(src))
    for row, n, y, x in cells(out):
        cell = y * out.shape[3] + x
        total = read(op.bias)[n * out.shape[2] * out.shape[3] + cell]
        for k, (c, i, j) in enumerate(np.ndindex(src.shape[1], op.size, op.size)):
            at_y, at_x = y * op.stride + i - op.padding, x * op.stride + j - op.padding
            if inside(src, at_y, at_x):
                total += weight[cell, n, k] * src[row, c, at_y, at_x]
        out[row, n, y, x] = total
    return out


def matmul(op: ops.MatMul, read: Read) -> Array:
    src, weight = read(op.src), read(op.weight)
    out = empty(op, len(src))
    for row in range(len(src)):
        for n in range(len(weight)):
            total = 0.0 if op.bias is None else read(op.bias)[n]
            for value, factor in zip(src[row].flat, weight[n], strict=True):
                total += value * factor
            out[row].flat[n] = total
    return activated(op.activation, out)


def gate(op: ops.Gate, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row in range(len(src)):
        values = [sum(plane.flat) / plane.size for plane in src[row]]
        for weight, bias, activation in [
            (op.squeeze, op.squeeze_bias, op.squeeze_activation),
            (op.expand, op.expand_bias, op.activation),
        ]:
            sums = np.zeros(weight.shape[0])
            for n, factors in enumerate(read(weight)):
                sums[n] = 0.0 if bias is None else read(bias)[n]
                for value, factor in zip(values, factors.flat, strict=True):
                    sums[n] += value * factor
            values = list(activated(activation, sums))
        out[row].flat[:] = values
    return out


# ---------------------------------------------------------------- value by value


def normalise(op: ops.Normalise, read: Read) -> Array:
    out = read(op.src).copy()
    for row, c, y, x in cells(out):
        centred = out[row, c, y, x] - read(op.mean)[c]
        spread = math.sqrt(read(op.variance)[c] + 1e-5)
        out[row, c, y, x] = centred / spread * read(op.scale)[c] + read(op.bias)[c]
    return out


def activate(op: ops.Activate, read: Read) -> Array:
    return activated(op.activation, read(op.src))


def add(op: ops.Add, read: Read) -> Array:
    out = empty(op, len(read(op.sources[0])))
    area = op.out.shape.area
    for row in range(len(out)):
        for s, source in enumerate(op.sources):
            values = read(source)[row].reshape(-1)
            for i in range(min(out[row].size, values.size)):
                factor = 1.0
                if op.weights is not None:
                    weights = read(op.weights)
                    factor = weights[s, i // area if weights.shape[1] > 1 else 0]
                out[row].flat[i] += factor * values[i]
    return activated(op.activation, out)


def multiply(op: ops.Multiply, read: Read) -> Array:
    out, factor = read(op.src).copy(), read(op.factor)
    for row, c, y, x in cells(out):
        _, channels, height, width = factor.shape
        out[row, c, y, x] *= factor[row, c % channels, y % height, x % width]
    return activated(op.activation, out)


def mix(op: ops.Mix, read: Read) -> Array:
    gate, yes, no = read(op.gate), read(op.yes), read(op.no)
    out = np.zeros_like(gate)
    for at in cells(out):
        out[at] = gate[at] * yes[at] + (1 - gate[at]) * no[at]
    return out


def clip(op: ops.Clip, read: Read) -> Array:
    src = read(op.src)
    values = [min(max(float(x), -op.limit), op.limit) for x in src.flat]
    return np.array(values).reshape(src.shape)


def repair(op: ops.Repair, read: Read) -> Array:
    out = read(op.src).copy()
    for i, value in enumerate(out.flat):
        if not math.isfinite(value):
            out.flat[i] = 1 / i if i else 0
    return out


# ---------------------------------------------------------------- across channels


def normalise_channels(op: ops.NormaliseChannels, read: Read) -> Array:
    src = read(op.src)
    out = np.zeros_like(src)
    for row, _, y, x in cells(src[:, :1]):
        pixel = [float(value) for value in src[row, :, y, x]]
        if op.kind == "positive":
            powers = [max(value, 0) for value in pixel]
        else:
            peak = max(pixel) if op.kind == "softmax_max" else 0
            powers = [math.exp(value - peak) for value in pixel]
        out[row, :, y, x] = [power / (sum(powers) + 1e-4) for power in powers]
    return out


def l2_norm(op: ops.L2Norm, read: Read) -> Array:
    src = read(op.src)
    out = np.zeros_like(src)
    for row, c, y, x in cells(src):
        out[row, c, y, x] = src[row, c, y, x] / math.hypot(*src[row, :, y, x])
    return out


def local_norm(op: ops.LocalNorm, read: Read) -> Array:
    src = read(op.src)
    out = np.zeros_like(src)
    channels = src.shape[1]
    for row, _, y, x in cells(src[:, :1]):
        pixel = src[row, :, y, x]

        def square(k: int, pixel: Array = pixel) -> float:
            return float(pixel[k] ** 2) if 0 <= k < channels else 0.0

        norm = op.kappa + op.alpha * sum(square(k) for k in range(op.size // 2))
        for k in range(channels):
            if k:
                gone = square(k - (op.size - 1) // 2 - 1)
                norm += op.alpha * (square(k + op.size // 2) - gone)
            out[row, k, y, x] = pixel[k] * norm**-op.beta
    return out


def softmax(op: ops.Softmax, read: Read) -> Array:
    out = read(op.src).copy()
    for row in range(len(out)):
        values = out[row].reshape(-1)
        values[:] = softmax_runs([value / op.temperature for value in values], op.runs)
    return out.reshape(len(out), *op.out.shape.sides)


def softmax_runs(values: list[float], runs: tuple[int, ...]) -> list[float]:
    result: list[float] = []
    while len(result) < len(values):
        for run in runs:
            part = values[len(result) : len(result) + run]
            powers = [math.exp(value - max(part)) for value in part]
            result += [power / sum(powers) for power in powers]
    return result


# ---------------------------------------------------------------- windows


def windows(
    src: Array, out: Array, window: Any, reduce: Callable[[list[float]], float], nothing: float
) -> Array:
    for row, c, y, x in cells(out):
        seen = []
        for i, j in np.ndindex(*window.size):
            at_y = y * window.stride[0] + i - window.padding[0]
            at_x = x * window.stride[1] + j - window.padding[1]
            if inside(src, at_y, at_x):
                seen.append(float(src[row, c, at_y, at_x]))
        out[row, c, y, x] = reduce(seen) if seen else nothing
    return out


def max_pool(op: ops.MaxPool, read: Read) -> Array:
    src = read(op.src)
    return windows(src, empty(op, len(src)), op.window, max, LOWEST)


def average_pool(op: ops.AveragePool, read: Read) -> Array:
    src = read(op.src)
    mean = lambda seen: sum(seen) / len(seen)  # noqa: E731
    return windows(src, empty(op, len(src)), op.window, mean, math.nan)


def max_pool_depth(op: ops.MaxPoolDepth, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row, g, y, x in cells(out):
        out[row, g, y, x] = max(src[row, g :: out.shape[1], y, x])
    return out


# ---------------------------------------------------------------- moving values


def concat(op: ops.Concat, read: Read) -> Array:
    out = empty(op, len(read(op.parts[0].src)))
    for part in op.parts:
        for k in range(part.count):
            out[:, part.at + k] = read(part.src)[:, part.first + k]
    return out


def reshape(op: ops.Reshape, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row in range(len(src)):
        for i, value in enumerate(src[row].flat):
            out[row].flat[i] = value
    return out


def upsample(op: ops.Upsample, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row, c, y, x in cells(out):
        out[row, c, y, x] = op.scale * src[row, c, y // op.stride, x // op.stride]
    return out


def block_sum(op: ops.BlockSum, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row, c, y, x in cells(out):
        for i, j in np.ndindex(op.stride, op.stride):
            out[row, c, y, x] += op.scale * src[row, c, y * op.stride + i, x * op.stride + j]
    return out


def reorg(op: ops.Reorg, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    stride, (channels, height, width) = op.stride, op.grid.sides
    q = channels // stride**2
    for row in range(len(src)):
        for at, (k, j, i) in enumerate(np.ndindex(channels, height, width)):
            y, x = j * stride + k // q // stride, i * stride + k // q % stride
            other = (k % q * height * stride + y) * width * stride + x
            if op.reverse:
                out[row].flat[other] = src[row].flat[at]
            else:
                out[row].flat[at] = src[row].flat[other]
    return out


def crop(op: ops.Crop, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    for row, c, y, x in cells(out):
        out[row, c, y, x] = src[row, c, y + op.top, x + op.left] * op.scale + op.shift
    return out


def take_step(op: ops.TakeStep, read: Read) -> Array:
    src = read(op.src)
    sequences = len(src) // op.src.steps
    return np.stack([src[op.step * sequences + sequence] for sequence in range(sequences)])


def join_steps(op: ops.JoinSteps, read: Read) -> Array:
    return np.stack([row for source in op.sources for row in read(source)])


def store(op: ops.Store, read: Read) -> Array:
    return read(op.src)


# ---------------------------------------------------------------- detection layers


def yolo_output(op: ops.YoloOutput, read: Read) -> Array:
    out = read(op.src).copy()
    size_entries = (2, 3) if op.box == 4 else (4, 6)
    for row, c, y, x in cells(out):
        entry = c % (op.box + 1 + op.classes)
        if not op.raw and entry not in size_entries:
            out[row, c, y, x] = logistic(out[row, c, y, x])
        if entry in ((0, 1) if op.box == 4 else (0, 2)):
            out[row, c, y, x] = out[row, c, y, x] * op.scale_x_y - (op.scale_x_y - 1) / 2
    return out


def region_output(op: ops.RegionOutput, read: Read) -> Array:
    src = read(op.src)
    out = empty(op, len(src))
    entries = op.coords + 1 + op.classes
    for row in range(len(src)):
        result: list[float] = []
        for y, x, anchor in np.ndindex(*src.shape[2:], op.anchors):
            values = [float(src[row, anchor * entries + entry, y, x]) for entry in range(entries)]
            if not op.background:
                values[op.coords] = logistic(values[op.coords])
            if op.runs:
                values[op.coords + 1 :] = softmax_runs(values[op.coords + 1 :], op.runs)
            result += values
        out[row].flat[:] = result
    return out


LOOPS: Mapping[type[ops.Op], Callable[..., Array]] = {
    ops.Conv2d: conv2d,
    ops.Chain: chain,
    ops.Deconv2d: deconv2d,
    ops.LocalConv2d: local_conv2d,
    ops.MatMul: matmul,
    ops.Gate: gate,
    ops.Normalise: normalise,
    ops.Activate: activate,
    ops.Add: add,
    ops.Multiply: multiply,
    ops.Mix: mix,
    ops.Clip: clip,
    ops.Repair: repair,
    ops.NormaliseChannels: normalise_channels,
    ops.L2Norm: l2_norm,
    ops.LocalNorm: local_norm,
    ops.Softmax: softmax,
    ops.MaxPool: max_pool,
    ops.MaxPoolDepth: max_pool_depth,
    ops.AveragePool: average_pool,
    ops.Concat: concat,
    ops.Reshape: reshape,
    ops.Upsample: upsample,
    ops.BlockSum: block_sum,
    ops.Reorg: reorg,
    ops.Crop: crop,
    ops.TakeStep: take_step,
    ops.JoinSteps: join_steps,
    ops.Store: store,
    ops.YoloOutput: yolo_output,
    ops.RegionOutput: region_output,
}


@cache
def by_loops(case: Case, *, sequences: int) -> Array:
    """Return the expected output of `case`; read-only, because it is cached."""
    inputs = {tensor: values.astype(float) for tensor, values in case.inputs(sequences).items()}

    def read(item: ops.Tensor | ops.Constant) -> Array:
        if isinstance(item, ops.Tensor):
            return inputs[item]
        return case.constants[item.name].astype(float)

    values = LOOPS[type(case.op)](case.op, read)
    values.flags.writeable = False
    return values
