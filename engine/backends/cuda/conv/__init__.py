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
    hopper_turns,
    im2col_gemm,
    implicit_gemm,
    pointwise,
    strided_batched,
    thin,
    tiled,
    winograd,
    xnor,
)
from engine.backends.cuda.floats import is_narrow
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
    **hopper_turns.VARIANTS,
    **thin.VARIANTS,
    **implicit_gemm.VARIANTS,
}


# What may read halves and write floats or the reverse, the first alone, and what keeps the bits of
# weights where few products are summed. See floats.py.
_EVERYWHERE = frozenset({"direct", *thin.VARIANTS, *implicit_gemm.VARIANTS})
_WRITE_FLOATS = _EVERYWHERE | {
    *("dot", "pointwise", "strided_batched", "im2col_gemm"),
    *hopper.VARIANTS,
    *hopper_turns.VARIANTS,
}
_EXACT = _EVERYWHERE | {"tiled", "depthwise"}


def candidates(target: Target, op: ops.Conv2d) -> tuple[str, ...]:
    """Every algorithm that can run this convolution."""
    assert op.pool is None, "fuse_pool is not among this device's passes"
    target = target.of(op)
    return tuple(name for name in ALGORITHMS if _can_run(name, target, op))


def _can_run(name: str, target: Target, op: ops.Conv2d) -> bool:
    if name not in ALGORITHMS:
        return False
    if op.src in target.floats and name not in _EVERYWHERE:
        return False
    if op.out in target.floats and name not in _WRITE_FLOATS:
        return False
    if target.bytes_of(op.src) == 2 and is_narrow(op) and name not in _EXACT:
        return False
    return ALGORITHMS[name].supports(target, op)


def signature(target: Target, op: ops.Conv2d) -> str:
    """What a measurement depends on, so that it serves every layer of the same shape."""
    target = target.of(op)
    source = "x".join(map(str, op.src.shape.sides))
    weight = "x".join(map(str, op.weight.shape))
    window = ",".join(map(str, (*op.stride, *op.padding, *op.dilation, op.groups)))
    extras = f"{int(op.signed)}{int(op.bias is not None)}{int(op.residual is not None)}"
    extras += "".join(str(target.bytes_of(each)) for each in (op.src, op.out))
    kinds = f"{op.activation},{op.last_activation}"
    rows = target.rows(op.out)
    return f"{target.precision} {rows} {source} {weight} {window} {extras} {kinds}"


def choice(target: Target, op: ops.Conv2d) -> str:
    """The name of the algorithm that runs this convolution."""
    target = target.of(op)
    for name in (target.algorithm, target.measured.get(signature(target, op))):
        if name is not None and _can_run(name, target, op):
            return name
    return rule_of_thumb(target, op)


def rule_of_thumb(target: Target, op: ops.Conv2d) -> str:
    """What is likely to be fastest, for a convolution that was not measured."""
    target = target.of(op)
    if target.rows(op.out) * op.out.shape.area <= 8 and _can_run("dot", target, op):
        return "dot"
    for best_of in (hopper.best, implicit_gemm.best, thin.best):
        best = best_of(target, op)
        if best is not None and _can_run(best, target, op):
            return best
    return candidates(target, op)[0]


def _workspace(target: Target, op: ops.Conv2d) -> int:
    return ALGORITHMS[choice(target, op)].workspace(target, op)


def _prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    return ALGORITHMS[choice(target, op)].prepare(target, op, constants)


@runs(ops.Conv2d, workspace=_workspace, prepare=_prepare)
def conv2d(gpu: Gpu, op: ops.Conv2d) -> None:
    ALGORITHMS[choice(gpu.target, op)].enqueue(gpu, op)
