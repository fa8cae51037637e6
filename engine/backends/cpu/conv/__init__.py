"""One file per convolution algorithm; `choose` picks the first that can do an op."""

from __future__ import annotations

from collections.abc import Mapping

from engine.backends.cpu.conv import plain
from engine.backends.cpu.conv.base import Array, Convolution
from engine.backends.cpu.workers import Workers
from engine.plan import ops

ALGORITHMS = (plain,)


def choose(op: ops.Conv2d, constants: Mapping[str, Array], workers: Workers) -> Convolution:
    """The convolution of `op`, its weights packed and its scratch reserved."""
    weight = constants[op.weight.name]
    bias = None if op.bias is None else constants[op.bias.name]
    algorithm = next(each for each in ALGORITHMS if each.supports(op))
    prepared: Convolution = algorithm.prepare(op, weight, bias, workers)
    return prepared
