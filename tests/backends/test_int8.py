"""int8 programs of the CPU: the definition, compared with sums of Python's own integers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from engine.backends.cpu import conv
from engine.backends.cpu.workers import Workers
from engine.passes import FUSING, optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan import int8, ops
from engine.plan.activations import ACTIVATIONS
from engine.plan.shapes import Shape, Window
from tests.backends.cases import tensor
from tests.passes.networks import Network
from tests.tails import conv2d

HALVE = Window((2, 2), (2, 2))
S, R, T = 0.02, 0.05, 0.03  # scales of source, residual and output, made float32 below


def sums_of(op, values, weight):
    """Return exact sums of products, (rows, filters, y, x)."""
    top, left, bottom, right = op.padding
    padded = np.pad(values.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    _, filters, (height, width) = len(values), len(weight), op.grid.sides[1:]
    total = np.zeros((len(values), filters, height, width), np.int64)
    for i in range(op.kernel[0]):
        for j in range(op.kernel[1]):
            y, x = i * op.dilation[0], j * op.dilation[1]
            seen = padded[:, :, y:, x:][:, :, :: op.stride[0], :: op.stride[1]]
            seen = seen[:, :, :height, :width]
            total += np.einsum("nchw,fc->nfhw", seen, weight[:, :, i, j].astype(np.int64))
    return total


CASES = {
    "1x1": conv2d(tensor(32, 9, 7), tensor(48, 9, 7), ops.Constant("w", (32, 48, 1, 1))),
    "3x3": conv2d(
        *(tensor(16, 5, 4), tensor(16, 9, 7), ops.Constant("w", (16, 16, 3, 3))),
        stride=(2, 2),
        padding=(1, 1, 1, 1),
        activation="leaky",
    ),
    "dilated": conv2d(
        *(tensor(16, 9, 7), tensor(32, 9, 7), ops.Constant("w", (16, 32, 3, 3))),
        padding=(2, 2, 2, 2),
        dilation=(2, 2),
        activation="mish",
    ),
    "residual": conv2d(
        *(tensor(16, 6, 6), tensor(16, 6, 6), ops.Constant("w", (16, 16, 3, 3))),
        padding=(1, 1, 1, 1),
        activation="leaky",
        residual=True,
        last_activation="relu",
    ),
    "pool": conv2d(
        *(tensor(16, 6, 6), tensor(16, 6, 6), ops.Constant("w", (16, 16, 3, 3))),
        padding=(1, 1, 1, 1),
        activation="leaky",
        pool=HALVE,
    ),
    "upsample": conv2d(
        *(tensor(16, 6, 6), tensor(16, 6, 6), ops.Constant("w", (16, 16, 1, 1))),
        activation="relu",
        upsample=2,
    ),
}


def expected(op, values, weight, bias, scales, residual):
    quantised, by_filter = int8.quantise_weights(weight)
    sums = sums_of(op, values, quantised).astype(np.float32).astype(np.float64)
    factor = (np.float32(scales[op.src]) * by_filter).astype(np.float64)
    x = (sums * factor[:, None, None] + bias[:, None, None]).astype(np.float32)
    x = np.asarray(ACTIVATIONS[op.activation].numpy(x), np.float32)
    if op.pool:
        x = x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max(axis=(3, 5))
    if op.residual is not None:
        x = (residual * np.float64(scales[op.residual]) + x).astype(np.float32)
        x = ACTIVATIONS[op.last_activation].numpy(x)
    if op.upsample:
        x = x.repeat(2, axis=2).repeat(2, axis=3)
    if op.out not in scales:
        return x
    products = x.astype(np.float64) * np.float64(np.float32(1 / scales[op.out]))
    return np.clip(np.rint(products), -128, 127).astype(np.int8)


@pytest.mark.parametrize("to", ["int8", "float"])
@pytest.mark.parametrize("name", CASES)
def test_it_adds_exactly_and_rounds_as_defined(name, to):
    op = CASES[name]
    rng = np.random.default_rng(0)
    bias = rng.standard_normal(op.weight.shape[0]).astype(np.float32)
    op = replace(op, bias=ops.Constant("b", bias.shape))
    weight = rng.standard_normal(op.weight.shape).astype(np.float32)
    scales = {op.src: float(np.float32(S))}
    if to == "int8":
        scales |= {op.out: float(np.float32(T))}
        scales |= {op.residual: float(np.float32(R))} if op.residual else {}
    values = rng.integers(-128, 128, (2, *op.src.shape.sides), np.int8)
    residual = None
    if op.residual:
        kind = np.int8 if op.residual in scales else np.float32
        residual = rng.integers(-128, 128, (2, *op.residual.shape.sides)).astype(kind)
    wanted = expected(op, values, weight, bias, {op.residual: 1.0, **scales}, residual)
    workers = Workers(2)
    with closing(workers):
        made = conv.choose(op, {"w": weight, "b": bias}, workers, scales)
        out = np.empty((2, *op.out.shape.sides[1:], op.out.shape.channels), wanted.dtype)
        args = [x if x is None else nhwc(x) for x in (values, residual)]
        with workers.serial_blas():
            made(args[0], out, args[1])
    np.testing.assert_array_equal(out.transpose(0, 3, 1, 2), wanted)


def nhwc(values):
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1))


def test_sums_beyond_the_whole_numbers_of_float32_are_exact():
    """Every product is the largest, so that float32 could not hold an odd sum of them."""
    op = conv2d(tensor(16, 1, 1), tensor(2048, 1, 1), ops.Constant("w", (16, 2048, 1, 1)))
    weight = np.full(op.weight.shape, 1, np.float32)
    weight[:, 0] = 1 / 127  # quantised to 1
    values = np.full((1, *op.src.shape.sides), -128, np.int8)
    values[0, 0] = 1
    workers = Workers(1)
    with closing(workers):
        made = conv.choose(op, {"w": weight}, workers, {op.src: 1.0})
        assert len(made.parts) > 1
        out = np.empty((1, 1, 1, 16), np.float32)
        made(nhwc(values), out)
    total = np.float32(-2047 * 127 * 128 + 1)
    factor = made.factors[0]
    np.testing.assert_array_equal(out, np.float32(np.float64(total) * np.float64(factor)))


def small_network():
    net = Network(channels=3, side=16, seed=3)
    stem = net.activate(net.conv(net.source, 16, has_bias=True), "leaky")
    half = net.pool(stem)
    body = net.activate(net.conv(half, 32, has_bias=True), "leaky")
    back = net.conv(body, 16, 1)
    total = net.add(back, half)
    joined = net.concat(net.upsample(net.pool(total, 2, 2)), total, body)
    reorged = net.builder.emit(
        ops.Reorg(net.new(Shape(256, 4, 4), joined), joined, 2, Shape(256, 4, 4))
    )
    last = net.conv(reorged, 16, 1)
    left, right = net.conv(total, 16), net.conv(total, 16)
    added = net.conv(net.add(left, right), 8)
    kept = [net.conv(net.concat(left, right), 8)]
    layers = [stem, half, body, back, total, joined, reorged, left, right]
    layers += [op.out for op in net.builder._ops if op.out not in layers]
    return net.builder.build(layers=layers, outputs=[last, added, *kept])


def ranges_of(plan, cpu, x):
    whole = plan.keeping_layers()
    with closing(cpu.compile(optimise(whole, cpu.passes))) as program:
        outputs = dict(zip(program.plan.outputs, program.forward(x), strict=True))
    return LayerRanges({n: float(np.abs(outputs[t]).max()) for n, t in enumerate(plan.layers)})


@pytest.mark.parametrize("names", [FUSING, ()], ids=["passes", "no passes"])
def test_a_network_is_close_to_float32(cpu, names):
    plan = small_network()
    x = np.random.default_rng(0).random((2, *plan.source.shape.sides), np.float32)
    with closing(cpu.compile(plan, batch=2)) as program:
        wanted = program.forward(x)
    made = quantise(optimise(plan, names), ranges_of(plan, cpu, x[:1]))
    assert made.scales
    with closing(cpu.compile(made, batch=2, precision="int8")) as program:
        found = program.forward(x)
        again = program.forward(x[:1])
    for one, two, alone in zip(wanted, found, again, strict=True):
        assert np.linalg.norm(one - two) < 0.05 * np.linalg.norm(one)
        np.testing.assert_array_equal(alone, two[:1])


def test_outputs_that_are_int8_are_given_as_floats(cpu):
    plan = small_network()
    x = np.random.default_rng(0).random((1, *plan.source.shape.sides), np.float32)
    ranges = ranges_of(plan, cpu, x)
    ready = quantise(optimise(plan.keeping_layers(), FUSING), ranges)
    assert ready.scales.keys() & set(ready.outputs)
    with closing(cpu.compile(ready, precision="int8")) as program:
        values = dict(zip(ready.outputs, program.forward(x), strict=True))
    with closing(
        cpu.compile(quantise(optimise(plan, FUSING), ranges), precision="int8")
    ) as program:
        last = program.forward(x)
    for tensor_, scale in ready.scales.items():
        if tensor_ in values:
            whole = values[tensor_] / np.float32(scale)
            np.testing.assert_allclose(whole, np.rint(whole), atol=1e-3)
    for tensor_, value in zip(plan.outputs, last, strict=True):
        assert np.linalg.norm(values[tensor_] - value) < 0.05 * np.linalg.norm(value)
