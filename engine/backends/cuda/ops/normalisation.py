"""Ops that normalise each pixel over its channels."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import runs
from engine.plan import ops

_KINDS = {"positive": 0, "softmax": 1, "softmax_max": 2}  # `kind` of the kernel


@runs(ops.NormaliseChannels)
def normalise_channels(gpu: Gpu, op: ops.NormaliseChannels) -> None:
    pixels, kind = gpu.pixels(op.out), _KINDS[op.kind]
    gpu.launch_map("normalise_channels", op.src, op.out, pixels, kind=kind)


@runs(ops.L2Norm)
def l2_norm(gpu: Gpu, op: ops.L2Norm) -> None:
    gpu.launch_map("l2_norm", op.src, op.out, gpu.pixels(op.out))


@runs(ops.LocalNorm)
def local_norm(gpu: Gpu, op: ops.LocalNorm) -> None:
    factors = {"alpha": float(op.alpha), "beta": float(op.beta), "kappa": float(op.kappa)}
    gpu.launch_map("local_norm", op.src, op.out, gpu.pixels(op.out), size=op.size, **factors)
