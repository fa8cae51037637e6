"""Small recurrent networks, and parts of their definitions in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends import open_device
from engine.darknet.lower import lower
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, random_weights

Array = NDArray[Any]


class Network:
    """One layer with random weights of both signs, on the CPU."""

    def __init__(self, layer: str, source: Shape, *, steps: int = 1, sequences: int = 1) -> None:
        graph = graph_of(layer, source, time_steps=steps)
        self.source, self.steps, self.sequences = source, steps, sequences
        self.weights = {
            name: values if name.endswith("variance") else values - np.float32(0.5)
            for name, values in random_weights(graph)[0].items()
        }
        self.plan = lower(graph, [self.weights])
        self.exact: Mapping[str, Array] = {
            name: values.astype(np.float64) for name, values in self.weights.items()
        }
        self._program = open_device("cpu:1").compile(self.plan, batch=sequences)

    def inputs(self, runs: int) -> Array:
        """Return inputs of both signs, (runs, steps * sequences, c, h, w)."""
        shape = (runs, self.steps * self.sequences, *self.source.sides)
        return np.random.default_rng(1).standard_normal(shape).astype(np.float32)

    def outputs(self, inputs: Array) -> Array:
        """Return the outputs of consecutive runs, which share the state."""
        return np.stack([self._program.forward(rows)[0] for rows in inputs])

    def reset(self) -> None:
        self._program.reset()

    def dense(self, prefix: str, x: Array) -> Array:
        """Apply the dense part `prefix` to rows of flat values."""
        out = x.reshape(len(x), -1) @ self.exact[f"{prefix}weight"].T
        return self._shift(prefix, out.reshape(*out.shape, 1, 1)).reshape(out.shape)

    def convolve(self, prefix: str, x: Array, groups: int = 1) -> Array:
        """Apply the padded 3 x 3 convolution `prefix` to rows of maps."""
        weight = self.exact[f"{prefix}weight"]
        filters, depth, size, _ = weight.shape
        height, width = x.shape[2:]
        padded = np.pad(x, ((0, 0), (0, 0), (size // 2,) * 2, (size // 2,) * 2))
        out = np.zeros((len(x), filters, height, width))
        for filter_ in range(filters):
            first = filter_ // (filters // groups) * depth
            for i in range(size):
                for j in range(size):
                    window = padded[:, first : first + depth, i : i + height, j : j + width]
                    out[:, filter_] += np.einsum("nchw,c->nhw", window, weight[filter_, :, i, j])
        return self._shift(prefix, out)

    def _shift(self, prefix: str, x: Array) -> Array:
        def column(name: str) -> Array:
            return self.exact[f"{prefix}{name}"][:, None, None]

        if f"{prefix}mean" in self.exact:
            x = (x - column("mean")) / np.sqrt(column("variance") + 1e-5) * column("scale")
        return x + column("bias")


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def leaky(x: Array) -> Array:
    return np.where(x > 0, x, 0.1 * x)


def assert_close(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def assert_steps_are_runs(layer: str, source: Shape) -> None:
    """Check that three time steps equal three runs of one, and that a reset starts over."""
    unrolled = Network(layer, source, steps=3, sequences=2)
    inputs = unrolled.inputs(2)
    together = unrolled.outputs(inputs)
    unrolled.reset()
    np.testing.assert_array_equal(unrolled.outputs(inputs), together)

    single = Network(layer, source, sequences=2)
    alone = single.outputs(inputs.reshape(6, 2, *source.sides))
    np.testing.assert_allclose(
        alone.reshape(together.shape), together, rtol=1e-5, atol=1e-6, err_msg=layer
    )
    assert not np.allclose(together[0], together[1])
