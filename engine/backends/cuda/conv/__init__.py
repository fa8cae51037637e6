"""Convolution algorithms, one file each, and the choice among them.

A file offers supports(target, op), workspace(target, op), prepare(target, op, constants) and
enqueue(gpu, op). The choice is the forced one, else what was measured, else a rule of thumb.
"""

from __future__ import annotations

from typing import Protocol

from engine.backends.cuda.conv import (
    depthwise,
    direct,
    dot,
    hopper,
    im2col_gemm,
    implicit_gemm,
    pointwise,
    strided_batched,
    thin,
    tiled,
    winograd,
    xnor,
)
from engine.backends.cuda.gpu import Arrays, Gpu, Target, runs
from engine.plan import ops


class Algorithm(Protocol):
    def supports(self, target: Target, op: ops.Conv2d) -> bool: ...

    def workspace(self, target: Target, op: ops.Conv2d) -> int: ...

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays: ...

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None: ...


# The first that supports a convolution takes it where no matrix units can.
ALGORITHMS: dict[str, Algorithm] = {
    "xnor": xnor,
    "depthwise": depthwise,
    "dot": dot,
    "pointwise": pointwise,
    "strided_batched": strided_batched,
    "im2col_gemm": im2col_gemm,
    "winograd": winograd,
    "tiled": tiled,
    "direct": direct,
    **hopper.VARIANTS,
    **thin.VARIANTS,
    **implicit_gemm.VARIANTS,
}


def candidates(target: Target, op: ops.Conv2d) -> tuple[str, ...]:
    """Every algorithm that can run this convolution."""
    assert op.pool is None, "fuse_pool is not among this device's passes"
    return tuple(name for name, each in ALGORITHMS.items() if each.supports(target, op))


def signature(target: Target, op: ops.Conv2d) -> str:
    """What a measurement depends on, so that it serves every layer of the same shape."""
    source = "x".join(map(str, op.src.shape.sides))
    weight = "x".join(map(str, op.weight.shape))
    window = ",".join(map(str, (*op.stride, *op.padding, *op.dilation, op.groups)))
    extras = f"{int(op.signed)}{int(op.bias is not None)}{int(op.residual is not None)}"
    kinds = f"{op.activation},{op.last_activation}"
    rows = target.rows(op.out)
    return f"{target.precision} {rows} {source} {weight} {window} {extras} {kinds}"


def choice(target: Target, op: ops.Conv2d) -> str:
    """The name of the algorithm that runs this convolution."""
    for name in (target.algorithm, target.measured.get(signature(target, op))):
        if name in ALGORITHMS and ALGORITHMS[name].supports(target, op):
            return name
    return rule_of_thumb(target, op)


def rule_of_thumb(target: Target, op: ops.Conv2d) -> str:
    """What is likely to be fastest, for a convolution that was not measured."""
    if dot.supports(target, op) and target.rows(op.out) * op.out.shape.area <= 8:
        return "dot"
    return (
        hopper.best(target, op)
        or implicit_gemm.best(target, op)
        or thin.best(target, op)
        or candidates(target, op)[0]
    )


def _workspace(target: Target, op: ops.Conv2d) -> int:
    return ALGORITHMS[choice(target, op)].workspace(target, op)


def _prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    return ALGORITHMS[choice(target, op)].prepare(target, op, constants)


@runs(ops.Conv2d, workspace=_workspace, prepare=_prepare)
def conv2d(gpu: Gpu, op: ops.Conv2d) -> None:
    ALGORITHMS[choice(gpu.target, op)].enqueue(gpu, op)
