"""Ops that compute each value from the values at the same place, and ops that need one call.

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
    ops.MaxPoolDepth: "max_pool_depth",
    ops.Mix: "mix",
    ops.Normalise: "normalise",
    ops.Repair: "repair",
    ops.Reshape: "reshape",
}
PIXELS: dict[type[ops.Op], str] = {ops.L2Norm: "l2_norm", ops.LocalNorm: "local_norm"}
PACKS: dict[type[ops.Op], str] = {ops.Activate: "activate_values", ops.Upsample: "upsample"}


def _run_by_values(gpu: Gpu, op: ops.Op) -> None:
    gpu.launch_op(VALUES[type(op)], op)


def _run_by_pixels(gpu: Gpu, op: ops.Op) -> None:
    gpu.launch_op(PIXELS[type(op)], op, gpu.pixels(op.out))


def _run_by_packs(gpu: Gpu, op: Any) -> None:
    gpu.launch_packed(PACKS[type(op)], op, op.src, op.out)


for _table, _function in (
    (VALUES, _run_by_values),
    (PIXELS, _run_by_pixels),
    (PACKS, _run_by_packs),
):
    for _kind in _table:
        runs(_kind)(_function)


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
        gpu.launch_map(
            "add_flat",
            source,
            op.out,
            None,
            op,
            weights=weights and weights + 4 * index * columns,
            weight_step=int(columns > 1),
            is_first=int(index == 0),
            is_last=int(index == len(op.sources) - 1),
        )


def _add_bytes(gpu: Gpu, op: ops.Add) -> None:
    a, b = op.sources
    scales = gpu.target.scales
    if a not in scales:  # see fold_conversions()
        packs = gpu.values(op.out) * gpu.target.value_bytes // 16
        operands = {"a": gpu[a], "a_pitch": gpu.pitch(a), "b": gpu[b], "b_pitch": gpu.pitch(b)}
        gpu.launch_map(
            "add_quarters_to_bytes",
            a,
            op.out,
            packs,
            op,
            **operands,
            b_channels=b.shape.channels,
            b_scale=scales[b],
            inverse=float(int8.inverse(scales[op.out])),
        )
        return
    gpu.launch_packed(
        "add_bytes",
        op,
        *(a, b, op.out),
        a=gpu[a],
        a_pitch=gpu.pitch(a),
        b=gpu[b],
        b_pitch=gpu.pitch(b),
        a_scale=scales[a],
        b_scale=scales[b],
        inverse=float(int8.inverse(scales[op.out])),
    )


def _add_two(gpu: Gpu, op: ops.Add) -> bool:
    """Add maps of one size, or whose flat values run through the other at four times the area."""
    (a, b), out = op.sources, op.out
    if a.shape != out.shape:
        return False
    operands = {"a": gpu[a], "a_pitch": gpu.pitch(a), "b": gpu[b], "b_pitch": gpu.pitch(b)}
    if b.shape.sides[1:] == out.shape.sides[1:]:
        channels = min(out.shape.channels, b.shape.channels)
        gpu.launch_packed("add_two", op, a, b, out, b_channels=channels, **operands)
        return True
    if b.shape.area == 4 * out.shape.area and gpu.packs(a, b, out):
        packs = gpu.values(out) * gpu.target.value_bytes // 16
        operands["b_channels"] = b.shape.channels
        gpu.launch_map("add_quarters_packed", a, out, packs, op, **operands)
        return True
    return False


@runs(ops.Multiply)
def multiply(gpu: Gpu, op: ops.Multiply) -> None:
    factor, pitch = op.factor.shape, gpu.pitch(op.factor)
    packed = (op.src, op.out) if factor.channels == 1 else (op.src, op.factor, op.out)
    gpu.launch_packed(
        "multiply",
        op,
        *packed,
        factor_row=factor.area * pitch,
        factor_pixel=pitch if factor.area > 1 else 0,
        factor_channel=1 if factor.channels > 1 else 0,
    )


@runs(ops.Load)
def load(gpu: Gpu, op: ops.Load) -> None:
    gpu.launch_map("spread", op.out, op.out, values=gpu.array(op, "constant"))
