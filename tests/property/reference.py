"""An independent implementation of darknet in float64 NumPy, without any code of engine/.

It also draws the weights: each array when a layer first needs it, and so in the order of a
.weights file, at a scale that keeps the following values near 1.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Options = dict[str, str]


class Reference:
    """A network that runs pictures (rows, c, h, w); row = time step * sequences + sequence."""

    def __init__(self, text: str, *, seed: int, time_steps: int = 1) -> None:
        self.net, *self.layers = _sections(text)
        self.time_steps = time_steps
        self.states: dict[int, list[Array]] = {}
        self.outputs: list[Array] = []
        self.normalised: dict[int, tuple[Array, ...]] = {}  # arrays of convolutions
        self._random = np.random.default_rng(seed)
        self._arrays: list[Array] = []
        self._variances: set[int] = set()  # indices of the arrays
        self._next = 0

    def run(self, pictures: Array) -> list[Array]:
        """Return the output of every layer, each (rows, ...)."""
        self.outputs = []
        self._next = 0
        x = pictures.astype(np.float64)
        for index, (kind, options) in enumerate(self.layers):
            x = LAYERS[kind](self, index, options, x)
            self.outputs.append(x)
        return self.outputs

    def weights_file(self, *, of_first_darknet: bool = False) -> bytes:
        """Encode the arrays; the original adds 1e-6 to the root, later ones 1e-5 within it."""
        values = list(self._arrays)
        for each in self._variances if of_first_darknet else ():
            values[each] = (np.sqrt(values[each].astype(np.float64) + 1e-5) - 1e-6) ** 2
        arrays = [array.astype("<f4").tobytes() for array in values]
        return struct.pack("<iiiq", 0, 2, 5, 0) + b"".join(arrays)

    def source(self, index: int, number: str | int) -> Array:
        number = int(number)
        return self.outputs[index + number if number < 0 else number]

    def take(self, *shape: int, draw: Callable[[np.random.Generator, tuple[int, ...]], Any]):
        """Draw the next array of the file."""
        if self._next == len(self._arrays):
            self._arrays.append(np.asarray(draw(self._random, shape), np.float32))
        values = self._arrays[self._next]
        assert values.shape == shape
        self._next += 1
        return values.astype(np.float64)

    def small(self, *shape: int) -> Array:
        return self.take(*shape, draw=lambda random, shape: 0.1 * random.standard_normal(shape))

    def near_one(self, *shape: int) -> Array:
        return self.take(*shape, draw=lambda random, shape: random.uniform(0.5, 1.5, shape))

    def matrix(self, *shape: int, fan_in: int, x: Array | None = None) -> Array:
        """Draw weights whose sums over `fan_in` values of `x` are near 1."""
        square = 1.0 if x is None else float(np.mean(x**2)) + 1e-3
        scale = 1 / np.sqrt(fan_in * square)
        return self.take(*shape, draw=lambda random, shape: scale * random.standard_normal(shape))

    def statistics(self, count: int) -> tuple[Array, Array, Array]:
        scale, mean, variance = self.near_one(count), self.small(count), self.near_one(count)
        self._variances.add(self._next - 1)
        return scale, mean, variance


def _sections(text: str) -> list[tuple[str, Options]]:
    sections: list[tuple[str, Options]] = []
    for line in text.split():
        if line.startswith("["):
            sections.append((line.strip("[]"), {}))
        else:
            key, value = line.split("=")
            sections[-1][1][key] = value
    return sections


def _int(options: Options, key: str, default: int) -> int:
    return int(options.get(key, default))


def _float(options: Options, key: str, default: float) -> float:
    return float(options.get(key, default))


def _ints(options: Options, key: str) -> list[int]:
    return [int(number) for number in options[key].split(",")]


# ---------------------------------------------------------------- activations


def sigmoid(x: Array) -> Array:
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def _softplus(x: Array) -> Array:
    return np.where(x > 20, x, np.where(x < -20, np.exp(np.minimum(x, 0)), np.logaddexp(x, 0)))


def _negative(x: Array, otherwise: Array) -> Array:
    return np.where(x > 0, x, otherwise)


def _hard_mish(x: Array) -> Array:
    return _negative(x, np.where(x > -2, x * x / 2 + x, 0))


def _plse(x: Array) -> Array:
    middle = 0.125 * x + 0.5
    return np.where(x < -4, 0.01 * (x + 4), np.where(x > 4, 0.01 * (x - 4) + 1, middle))


def _across_channels(x: Array, numerator: Array) -> Array:
    return numerator / (1e-4 + numerator.sum(axis=1, keepdims=True))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "leaky": lambda x: _negative(x, 0.1 * x),
    "revleaky": lambda x: _negative(x, 0.1 * x),
    "relu": lambda x: _negative(x, 0 * x),
    "relu6": lambda x: np.minimum(_negative(x, 0 * x), 6),
    "relie": lambda x: _negative(x, 0.01 * x),
    "ramp": lambda x: x * (x > 0) + 0.1 * x,
    "logistic": sigmoid,
    "loggy": lambda x: 2 * sigmoid(x) - 1,
    "tanh": lambda x: 2 * sigmoid(2 * x) - 1,
    "swish": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "hard_mish": _hard_mish,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.797885 * x + 0.035677 * x**3)),
    "elu": lambda x: _negative(x, np.exp(np.minimum(x, 0)) - 1),
    "selu": lambda x: 1.0507 * _negative(x, 1.6732 * (np.exp(np.minimum(x, 0)) - 1)),
    "plse": _plse,
    "hardtan": lambda x: np.minimum(np.maximum(x, -1), 1),
    "lhtan": lambda x: np.where(x < 0, 0.001 * x, np.where(x > 1, 0.001 * (x - 1) + 1, x)),
    "normalize_channels_softmax": lambda x: _across_channels(x, np.exp(x)),
    "normalize_channels_softmax_maxval": lambda x: _across_channels(
        x, np.exp(x - x.max(axis=1, keepdims=True))
    ),
}


def _activate(options: Options, x: Array, default: str) -> Array:
    return ACTIVATIONS[options.get("activation", default)](x)


# ---------------------------------------------------------------- parts


def _extent(extent: int, size: int, stride: int, padding: int) -> int:
    return (extent + padding - size) // stride + 1


def _normalise(x: Array, statistics: tuple[Array, Array, Array], bias: Array) -> Array:
    scale, mean, variance, bias = (each[:, None, None] for each in (*statistics, bias))
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


def _convolve(
    x: Array,
    weight: Array,
    *,
    strides: tuple[int, int],
    padding: int,
    dilation: int = 1,
    groups: int = 1,
) -> Array:
    """Convolve tap by tap; the output size ignores the dilation, as in darknet."""
    rows, _, height, width = x.shape
    filters, depth, size, _ = weight.shape
    out_height = _extent(height, size, strides[0], 2 * padding)
    out_width = _extent(width, size, strides[1], 2 * padding)
    border = padding * dilation
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    out = np.zeros((rows, filters, out_height, out_width))
    each = filters // groups
    for group in range(groups):
        source = padded[:, group * depth : (group + 1) * depth]
        chosen = slice(group * each, (group + 1) * each)
        for i in range(size):
            for j in range(size):
                top, left = i * dilation, j * dilation
                window = source[
                    :,
                    :,
                    top : top + (out_height - 1) * strides[0] + 1 : strides[0],
                    left : left + (out_width - 1) * strides[1] + 1 : strides[1],
                ]
                out[:, chosen] += np.einsum("rchw,nc->rnhw", window, weight[chosen, :, i, j])
    return out


def _strides(options: Options) -> tuple[int, int]:
    stride = _int(options, "stride", 1)
    return _int(options, "stride_y", stride), _int(options, "stride_x", stride)


def _blur(x: Array, kind: int, strides: tuple[int, int]) -> Array:
    taps = np.full((2, 2), 1 / 4) if kind == 2 else np.outer([1, 2, 1], [1, 2, 1]) / 16
    channels = x.shape[1]
    weight = np.repeat(taps[None, None], channels, axis=0)
    padding = 0 if kind == 2 else 1
    return _convolve(x, weight, strides=strides, padding=padding, groups=channels)


def _windows(x: Array, options: Options, strides: tuple[int, int], reduce) -> Array:
    """Apply `reduce` to the cells of each window that are inside the map."""
    rows, channels, height, width = x.shape
    size = _int(options, "size", _int(options, "stride", 1))
    padding = _int(options, "padding", size - 1)
    out_height = _extent(height, size, strides[0], padding)
    out_width = _extent(width, size, strides[1], padding)
    out = np.empty((rows, channels, out_height, out_width))
    for y in range(out_height):
        for x_ in range(out_width):
            top, left = y * strides[0] - padding // 2, x_ * strides[1] - padding // 2
            window = x[:, :, max(top, 0) : top + size, max(left, 0) : left + size]
            out[:, :, y, x_] = reduce(window, axis=(2, 3))
    return out


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)


def _row(x: Array) -> Array:
    return x.reshape(len(x), -1, 1, 1)


def _dense(
    net: Reference, inputs: int, outputs: int, *, normalised: bool, x: Array | None = None
) -> Callable[[Array], Array]:
    """Compute a dense layer, whose weights precede the statistics, unlike in a convolution."""
    bias = net.small(outputs)
    weight = net.matrix(outputs, inputs, fan_in=inputs, x=x)
    if not normalised:
        return lambda x: _flat(x) @ weight.T + bias
    scale, mean, variance = net.statistics(outputs)
    return lambda x: (_flat(x) @ weight.T - mean) / np.sqrt(variance + 1e-5) * scale + bias


# ---------------------------------------------------------------- layers


def convolutional(net: Reference, index: int, options: Options, x: Array) -> Array:
    filters, size = _int(options, "filters", 1), _int(options, "size", 1)
    groups = _int(options, "groups", 1)
    if "share_index" in options:
        share = int(options["share_index"])
        arrays = net.normalised[index + share if share < 0 else share]
    else:
        depth = x.shape[1] // groups
        bias = net.small(filters)
        statistics = net.statistics(filters) if _int(options, "batch_normalize", 0) else ()
        fan_in = depth * size * size
        if _int(options, "flipped", 0):
            weight = net.matrix(fan_in, filters, fan_in=fan_in, x=x).T
            weight = weight.reshape(filters, depth, size, size)
        else:
            weight = net.matrix(filters, depth, size, size, fan_in=fan_in, x=x)
        arrays = (weight, bias, *statistics)
    net.normalised[index] = arrays
    weight, bias, *statistics = arrays
    blur = _int(options, "antialiasing", 0)
    out = _convolve(
        x,
        weight,
        strides=(1, 1) if blur else _strides(options),
        padding=size // 2 if _int(options, "pad", 0) else _int(options, "padding", 0),
        dilation=1 if size == 1 else _int(options, "dilation", 1),
        groups=groups,
    )
    out = _normalise(out, tuple(statistics), bias) if statistics else out + bias[:, None, None]
    out = _activate(options, out, "logistic")
    return _blur(out, blur, _strides(options)) if blur else out


def deconvolutional(net: Reference, index: int, options: Options, x: Array) -> Array:
    filters, size, stride = (_int(options, key, 1) for key in ("filters", "size", "stride"))
    padding = size // 2 if _int(options, "pad", 0) else _int(options, "padding", 0)
    rows, channels, height, width = x.shape
    bias = net.small(filters)
    statistics = net.statistics(filters) if _int(options, "batch_normalize", 0) else None
    weight = net.matrix(channels, filters, size, size, fan_in=channels * size, x=x)
    whole = np.zeros((rows, filters, (height - 1) * stride + size, (width - 1) * stride + size))
    for y in range(height):
        for x_ in range(width):
            at = whole[:, :, y * stride : y * stride + size, x_ * stride : x_ * stride + size]
            at += np.einsum("rc,cnij->rnij", x[:, :, y, x_], weight)
    out = whole[:, :, padding : whole.shape[2] - padding, padding : whole.shape[3] - padding]
    out = _normalise(out, statistics, bias) if statistics else out + bias[:, None, None]
    return _activate(options, out, "logistic")


def local(net: Reference, index: int, options: Options, x: Array) -> Array:
    filters, size, stride = (_int(options, key, 1) for key in ("filters", "size", "stride"))
    pad = _int(options, "pad", 0)
    rows, channels, height, width = x.shape
    out_height = _extent(height, size, stride, 2 * pad)
    out_width = _extent(width, size, stride, 2 * pad)
    bias = net.small(filters * out_height * out_width)
    fan_in = channels * size * size
    weight = net.matrix(out_height * out_width, filters, fan_in, fan_in=fan_in, x=x)
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out = np.empty((rows, filters, out_height, out_width))
    for y in range(out_height):
        for x_ in range(out_width):
            window = padded[:, :, y * stride : y * stride + size, x_ * stride : x_ * stride + size]
            out[:, :, y, x_] = _flat(window) @ weight[y * out_width + x_].T
    return _activate(options, out + bias.reshape(out.shape[1:]), "logistic")


def connected(net: Reference, index: int, options: Options, x: Array) -> Array:
    normalised = bool(_int(options, "batch_normalize", 0))
    outputs = _int(options, "output", 1)
    dense = _dense(net, _flat(x).shape[1], outputs, normalised=normalised, x=x)
    return _activate(options, _row(dense(x)), "logistic")


def batchnorm(net: Reference, index: int, options: Options, x: Array) -> Array:
    bias = net.small(x.shape[1])
    return _normalise(x, net.statistics(x.shape[1]), bias)


def maxpool(net: Reference, index: int, options: Options, x: Array) -> Array:
    if _int(options, "maxpool_depth", 0):
        outputs = int(options["out_channels"])
        chosen = [x[:, first::outputs].max(axis=1) for first in range(outputs)]
        return np.stack(chosen, axis=1)
    blur = _int(options, "antialiasing", 0)
    out = _windows(x, options, (1, 1) if blur else _strides(options), np.max)
    return _blur(out, blur, _strides(options)) if blur else out


def local_avgpool(net: Reference, index: int, options: Options, x: Array) -> Array:
    return _windows(x, options, _strides(options), np.mean)


def avgpool(net: Reference, index: int, options: Options, x: Array) -> Array:
    return x.mean(axis=(2, 3), keepdims=True)


def route(net: Reference, index: int, options: Options, x: Array) -> Array:
    groups, group = _int(options, "groups", 1), _int(options, "group_id", 0)
    parts = []
    for number in _ints(options, "layers"):
        source = net.source(index, number)
        count = source.shape[1] // groups
        parts.append(source[:, group * count : (group + 1) * count])
    if len({part.shape[2:] for part in parts}) > 1:
        return _row(np.concatenate([_flat(part) for part in parts], axis=1))
    return np.concatenate(parts, axis=1)


def shortcut(net: Reference, index: int, options: Options, x: Array) -> Array:
    sources = [x, *(net.source(index, number) for number in _ints(options, "from"))]
    factors = np.ones((len(sources), 1))
    kind = options.get("weights_type", "none")
    if kind != "none":
        columns = x.shape[1] if kind == "per_channel" else 1
        factors = net.take(
            len(sources), columns, draw=lambda random, shape: random.uniform(-0.3, 1, shape)
        )
        if options["weights_normalization"] == "softmax":
            factors = np.exp(factors - factors.max(axis=0))
        else:
            factors = np.maximum(factors, 0.001)
        factors = factors / (factors.sum(axis=0) + 1e-4)
    out = np.zeros_like(x)
    for source, factor in zip(sources, factors, strict=True):
        count = min(_flat(source).shape[1], _flat(x).shape[1])
        term = np.zeros_like(_flat(x))
        term[:, :count] = _flat(source)[:, :count]
        out += term.reshape(x.shape) * factor[:, None, None]
    return _activate(options, out, "linear")


def sam(net: Reference, index: int, options: Options, x: Array) -> Array:
    return _activate(options, net.source(index, options["from"]) * x, "linear")


def upsample(net: Reference, index: int, options: Options, x: Array) -> Array:
    stride, scale = _int(options, "stride", 2), _float(options, "scale", 1)
    if stride > 0:
        return scale * x.repeat(stride, axis=2).repeat(stride, axis=3)
    rows, channels, height, width = x.shape
    blocks = (rows, channels, height // -stride, -stride, width // -stride, -stride)
    return scale * x.reshape(blocks).sum(axis=(3, 5))


def reorg3d(net: Reference, index: int, options: Options, x: Array) -> Array:
    """Space to depth: channel k of the output is cell (k / c) of the blocks of channel k % c."""
    stride = int(options["stride"])
    cells = [x[:, :, i::stride, j::stride] for i in range(stride) for j in range(stride)]
    return np.concatenate(cells, axis=1)


def reorg(net: Reference, index: int, options: Options, x: Array) -> Array:
    """Permute as [reorg3d] does, but with the shape of the input."""
    stride = int(options["stride"])
    rows, channels, height, width = x.shape
    depth = channels // stride**2
    wide = x.reshape(rows, depth, height * stride, width * stride)
    scrambled = reorg3d(net, index, options, wide)
    return scrambled.reshape(rows, channels * stride**2, height // stride, width // stride)


def normalization(net: Reference, index: int, options: Options, x: Array) -> Array:
    size = _int(options, "size", 5)
    alpha, beta = _float(options, "alpha", 0.0001), _float(options, "beta", 0.75)
    squares = x**2
    norms = np.empty_like(x)
    norms[:, 0] = _float(options, "kappa", 1) + alpha * squares[:, : size // 2].sum(axis=1)
    for k in range(1, x.shape[1]):
        norms[:, k] = norms[:, k - 1]
        if k + size // 2 < x.shape[1]:
            norms[:, k] += alpha * squares[:, k + size // 2]
        if k - (size - 1) // 2 - 1 >= 0:
            norms[:, k] -= alpha * squares[:, k - (size - 1) // 2 - 1]
    return x * norms**-beta


def softmax(net: Reference, index: int, options: Options, x: Array) -> Array:
    groups, temperature = _int(options, "groups", 1), _float(options, "temperature", 1)
    values = x.reshape(len(x), groups, -1) / temperature
    values = np.exp(values - values.max(axis=2, keepdims=True))
    return _row(values / values.sum(axis=2, keepdims=True))


def crop(net: Reference, index: int, options: Options, x: Array) -> Array:
    height, width = int(options["crop_height"]), int(options["crop_width"])
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    out = x[:, :, top : top + height, left : left + width]
    return out if _int(options, "noadjust", 0) else 2 * out - 1


def implicit(net: Reference, index: int, options: Options, x: Array) -> Array:
    values = net.near_one(int(options["filters"]), _int(options, "atoms", 1), 1)
    return np.broadcast_to(values, (len(x), *values.shape))


def l2norm(net: Reference, index: int, options: Options, x: Array) -> Array:
    return x / np.sqrt((x**2).sum(axis=1, keepdims=True))


def unchanged(net: Reference, index: int, options: Options, x: Array) -> Array:
    return x


def activation(net: Reference, index: int, options: Options, x: Array) -> Array:
    return _activate(options, x, "linear")


def logistic(net: Reference, index: int, options: Options, x: Array) -> Array:
    return sigmoid(x)


# ---------------------------------------------------------------- layers with a memory


def _by_step(net: Reference, x: Array) -> list[Array]:
    return np.split(x, net.time_steps)


def _hidden_loop(net: Reference, index: int, fed: Array, keep, *, shortcut: bool) -> Array:
    """Return the states of all steps: s' = fed + keep(s), plus s with a shortcut."""
    steps = _by_step(net, fed)
    (state,) = net.states.setdefault(index, [np.zeros_like(steps[0])])
    states = []
    for step in steps:
        state = step + keep(state) + (state if shortcut else 0)
        states.append(state)
    net.states[index] = [state]
    return np.concatenate(states)


def rnn(net: Reference, index: int, options: Options, x: Array) -> Array:
    hidden, outputs = _int(options, "hidden", 1), _int(options, "output", 1)
    name = options.get("activation", "logistic")
    kept = (name, "logistic", "loggy")[_int(options, "logistic", 0)]
    normalised = bool(_int(options, "batch_normalize", 0))
    feed = _dense(net, _flat(x).shape[1], hidden, normalised=normalised, x=x)
    keep = _dense(net, hidden, hidden, normalised=normalised)
    answer = _dense(net, hidden, outputs, normalised=normalised)
    states = _hidden_loop(
        net,
        index,
        ACTIVATIONS[name](feed(x)),
        lambda state: ACTIVATIONS[kept](keep(state)),
        shortcut=bool(_int(options, "shortcut", 0)),
    )
    return _row(ACTIVATIONS[name](answer(states)))


def crnn(net: Reference, index: int, options: Options, x: Array) -> Array:
    hidden, outputs = _int(options, "hidden", 1), _int(options, "output", 1)
    size = _int(options, "size", 3)
    name = options.get("activation", "logistic")

    def part(channels: int, filters: int, x: Array | None = None):
        bias = net.small(filters)
        statistics = net.statistics(filters) if _int(options, "batch_normalize", 0) else None
        fan_in = channels * size * size
        weight = net.matrix(filters, channels, size, size, fan_in=fan_in, x=x)

        def convolve(x: Array) -> Array:
            out = _convolve(x, weight, strides=(1, 1), padding=size // 2)
            out = _normalise(out, statistics, bias) if statistics else out + bias[:, None, None]
            return ACTIVATIONS[name](out)

        return convolve

    feed, keep, answer = part(x.shape[1], hidden, x), part(hidden, hidden), part(hidden, outputs)
    is_shortcut = bool(_int(options, "shortcut", 0))
    return answer(_hidden_loop(net, index, feed(x), keep, shortcut=is_shortcut))


def gru(net: Reference, index: int, options: Options, x: Array) -> Array:
    count = _int(options, "output", 1)
    normalised = bool(_int(options, "batch_normalize", 0))
    inputs = _flat(x).shape[1]
    fed = [_dense(net, inputs, count, normalised=normalised, x=x) for _ in "zrh"]
    kept = [_dense(net, count, count, normalised=normalised) for _ in "zrh"]
    steps = _by_step(net, x)
    (state,) = net.states.setdefault(index, [np.zeros((len(steps[0]), count))])
    outputs = []
    for step in steps:
        update = sigmoid(fed[0](step) + kept[0](state))
        reset = sigmoid(fed[1](step) + kept[1](state))
        candidate = sigmoid(fed[2](step) + kept[2](reset * state))
        state = update * state + (1 - update) * candidate
        outputs.append(state)
    net.states[index] = [state]
    return _row(np.concatenate(outputs))


def lstm(net: Reference, index: int, options: Options, x: Array) -> Array:
    """Compute an LSTM; w of the state precedes u of the input, each in the order f, i, g, o."""
    count = _int(options, "output", 1)
    normalised = bool(_int(options, "batch_normalize", 0))
    inputs = _flat(x).shape[1]
    kept = [_dense(net, count, count, normalised=normalised) for _ in "figo"]
    fed = [_dense(net, inputs, count, normalised=normalised, x=x) for _ in "figo"]
    steps = _by_step(net, x)
    zero = np.zeros((len(steps[0]), count))
    state, cell = net.states.setdefault(index, [zero, zero])
    outputs = []
    for step in steps:
        sums = [u(step) + w(state) for u, w in zip(fed, kept, strict=True)]
        forget, take, show = (sigmoid(sums[each]) for each in (0, 1, 3))
        cell = forget * cell + take * np.tanh(sums[2])
        state = show * np.tanh(cell)
        outputs.append(state)
    net.states[index] = [state, cell]
    return _row(np.concatenate(outputs))


# ---------------------------------------------------------------- detection


def _boxes(x: Array, options: Options, *, box: int, squashed: list[int]) -> Array:
    count = len(options["mask"].split(",")) if "mask" in options else _int(options, "num", 1)
    scale = _float(options, "scale_x_y", 1)
    out = x.reshape(len(x), count, -1, *x.shape[2:]).copy()
    out[:, :, squashed] = sigmoid(out[:, :, squashed])
    moved = [0, 1] if box == 4 else [0, 2]
    out[:, :, moved] = out[:, :, moved] * scale - (scale - 1) / 2
    return out.reshape(x.shape)


def yolo(net: Reference, index: int, options: Options, x: Array) -> Array:
    entries = list(range(4, 5 + int(options["classes"])))
    is_raw = bool(_int(options, "new_coords", 0))
    return _boxes(x, options, box=4, squashed=[] if is_raw else [0, 1, *entries])


def gaussian_yolo(net: Reference, index: int, options: Options, x: Array) -> Array:
    """Apply logistic to all of x, sx, y, sy, w, sw, h, sh except w and h."""
    entries = list(range(8, 9 + int(options["classes"])))
    return _boxes(x, options, box=8, squashed=[0, 1, 2, 3, 5, 7, *entries])


def region(net: Reference, index: int, options: Options, x: Array) -> Array:
    num, coords = _int(options, "num", 1), _int(options, "coords", 4)
    out = x.reshape(len(x), num, -1, x.shape[2] * x.shape[3]).transpose(0, 3, 1, 2).copy()
    if not _int(options, "background", 0):
        out[..., coords] = sigmoid(out[..., coords])
    if _int(options, "softmax", 0):
        scores = np.exp(out[..., coords + 1 :])
        out[..., coords + 1 :] = scores / scores.sum(axis=-1, keepdims=True)
    return out.reshape(x.shape)


LAYERS: dict[str, Callable[[Reference, int, Options, Array], Array]] = {
    "convolutional": convolutional,
    "deconvolutional": deconvolutional,
    "local": local,
    "connected": connected,
    "batchnorm": batchnorm,
    "maxpool": maxpool,
    "local_avgpool": local_avgpool,
    "avgpool": avgpool,
    "route": route,
    "shortcut": shortcut,
    "scale_channels": sam,  # factors of (c, 1, 1) or (1, h, w) are broadcast
    "sam": sam,
    "upsample": upsample,
    "reorg": reorg,
    "reorg3d": reorg3d,
    "normalization": normalization,
    "softmax": softmax,
    "crop": crop,
    "implicit": implicit,
    "l2norm": l2norm,
    "dropout": unchanged,
    "empty": unchanged,
    "activation": activation,
    "logistic": logistic,
    "rnn": rnn,
    "crnn": crnn,
    "gru": gru,
    "lstm": lstm,
    "yolo": yolo,
    "Gaussian_yolo": gaussian_yolo,
    "region": region,
}
