"""Elementwise ops, and ops that need one call.

The kernels of VALUES, PIXELS and PACKS take nothing but the fields of their op. A work item is a
value, a pixel, or a value or pack of 16 bytes.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.ops.gpu import Gpu, runs
from engine.plan import int8, ops

VALUES: dict[type[ops.Op], str] = {
    ops.BlockSum: "block_sum",
    ops.Clip: "clip",
    ops.Crop: "crop",
    ops.Load: "spread",
    ops.MaxPoolDepth: "max_pool_depth",
    ops.Mix: "mix",
    ops.Normalise: "normalise",
    ops.Repair: "repair",
    ops.Reshape: "reshape",
}
PIXELS: dict[type[ops.Op], str] = {ops.L2Norm: "l2_norm", ops.LocalNorm: "local_norm"}
PACKS: dict[type[ops.Op], str] = {ops.Activate: "activate_values", ops.Upsample: "upsample"}


def _run(gpu: Gpu, op: Any) -> None:
    kind = type(op)
    if kind in PACKS:
        gpu.launch_packed(PACKS[kind], op)
    elif kind in PIXELS:
        gpu.launch_op(PIXELS[kind], op, gpu.pixels(op.out))
    else:
        gpu.launch_op(VALUES[kind], op)


for _kind in VALUES | PIXELS | PACKS:
    runs(_kind)(_run)


@runs(ops.Add)
def add(gpu: Gpu, op: ops.Add) -> None:
    if op.out in gpu.target.scales:
        _add_bytes(gpu, op)
        return
    if len(op.sources) == 2 and op.weights is None and _add_two(gpu, op):
        return
    weights = gpu.array(op, "weights")
    columns = 1 if op.weights is None else op.weights.shape[1]
    for index, source in enumerate(op.sources):
        gpu.launch(
            "add_flat",
            gpu.values(op.out),
            gpu.arguments(op, source),
            weights=weights and weights + 4 * index * columns,
            weight_step=int(columns > 1),
            is_first=int(index == 0),
            is_last=int(index == len(op.sources) - 1),
        )


def _add_bytes(gpu: Gpu, op: ops.Add) -> None:
    (a, b), scales = op.sources, gpu.target.scales
    own = {"b_scale": scales[b], "inverse": float(int8.inverse(scales[op.out]))}
    if a in scales:
        gpu.launch_packed(
            "add_bytes", op, a, b, op.out, a_scale=scales[a], **own, **_operands(gpu, op)
        )
    else:  # see fold_conversions()
        _add_quarters(gpu, "add_quarters_to_bytes", op, **own)


def _add_two(gpu: Gpu, op: ops.Add) -> bool:
    """Add maps of one size, or one that has four times the area; return whether that was done."""
    (a, b), out = op.sources, op.out
    if a.shape != out.shape:
        return False
    if b.shape.sides[1:] == out.shape.sides[1:]:
        channels = min(out.shape.channels, b.shape.channels)
        operands = _operands(gpu, op)
        gpu.launch_packed("add_two", op, a, b, out, b_channels=channels, **operands)
        return True
    if b.shape.area == 4 * out.shape.area and gpu.packs(a, b, out):
        _add_quarters(gpu, "add_quarters_packed", op)
        return True
    return False


def _add_quarters(gpu: Gpu, kernel: str, op: ops.Add, **own: float) -> None:
    packs = gpu.values(op.out) // gpu.target.pack
    operands = _operands(gpu, op) | own
    gpu.launch_op(kernel, op, packs, b_channels=op.sources[1].shape.channels, **operands)


def _operands(gpu: Gpu, op: ops.Add) -> dict[str, float]:
    a, b = op.sources
    return {"a": gpu[a], "a_pitch": gpu.pitch(a), "b": gpu[b], "b_pitch": gpu.pitch(b)}


@runs(ops.Multiply)
def multiply(gpu: Gpu, op: ops.Multiply) -> None:
    factor, pitch = op.factor.shape, gpu.pitch(op.factor)
    packed = () if factor.channels == 1 else (op.src, op.factor, op.out)
    gpu.launch_packed(
        "multiply",
        op,
        *packed,
        factor_row=factor.area * pitch,
        factor_pixel=pitch if factor.area > 1 else 0,
        factor_channel=1 if factor.channels > 1 else 0,
    )
