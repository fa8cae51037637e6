"""Ops that compute each value from the values at the same place."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import KINDS, Gpu, runs
from engine.plan import ops


@runs(ops.Normalise)
def normalise(gpu: Gpu, op: ops.Normalise) -> None:
    arrays = {name: gpu.array(op, name) for name in ("mean", "variance", "scale", "bias")}
    gpu.launch_map("normalise", op.src, op.out, **arrays)


@runs(ops.Activate)
def activate(gpu: Gpu, op: ops.Activate) -> None:
    kind = KINDS[op.activation]
    gpu.launch_packed("activate_values", op.src, op.out, kind=kind)


@runs(ops.Add)
def add(gpu: Gpu, op: ops.Add) -> None:
    if len(op.sources) == 2 and op.weights is None and _add_two(gpu, op):
        return
    weights = gpu.array(op, "weights")
    columns = 1 if op.weights is None else op.weights.shape[1]
    for index, source in enumerate(op.sources):
        gpu.launch_map(
            "add_flat",
            source,
            op.out,
            weights=weights and weights + 4 * index * columns,
            weight_step=int(columns > 1),
            is_first=int(index == 0),
            is_last=int(index == len(op.sources) - 1),
            kind=KINDS[op.activation],
        )


def _add_two(gpu: Gpu, op: ops.Add) -> bool:
    """Add maps of one size, or whose flat values run through the other at four times the area."""
    (a, b), out = op.sources, op.out
    if a.shape != out.shape:
        return False
    operands = {"a": gpu[a], "a_pitch": gpu.pitch(a), "b": gpu[b], "b_pitch": gpu.pitch(b)}
    operands["kind"] = KINDS[op.activation]
    if b.shape.sides[1:] == out.shape.sides[1:]:
        channels = min(out.shape.channels, b.shape.channels)
        gpu.launch_packed("add_two", a, b, out, b_channels=channels, **operands)
        return True
    if b.shape.area == 4 * out.shape.area and gpu.packs(a, b, out):
        packs = gpu.values(out) * gpu.target.value_bytes // 16
        operands["b_channels"] = b.shape.channels
        gpu.launch_map("add_quarters_packed", a, out, packs, **operands)
        return True
    return False


@runs(ops.Multiply)
def multiply(gpu: Gpu, op: ops.Multiply) -> None:
    factor, pitch = op.factor.shape, gpu.pitch(op.factor)
    packed = (op.src, op.out) if factor.channels == 1 else (op.src, op.factor, op.out)
    gpu.launch_packed(
        "multiply",
        *packed,
        factor=gpu[op.factor],
        factor_row=factor.area * pitch,
        factor_pixel=pitch if factor.area > 1 else 0,
        factor_channel=1 if factor.channels > 1 else 0,
        kind=KINDS[op.activation],
    )


@runs(ops.Mix)
def mix(gpu: Gpu, op: ops.Mix) -> None:
    tensors = {"gate": op.gate, "yes": op.yes, "no": op.no}
    pitches = {f"{name}_pitch": gpu.pitch(tensor) for name, tensor in tensors.items()}
    pointers = {name: gpu[tensor] for name, tensor in tensors.items()}
    gpu.launch_map("mix", op.gate, op.out, **pointers, **pitches)


@runs(ops.Clip)
def clip(gpu: Gpu, op: ops.Clip) -> None:
    gpu.launch_map("clip", op.src, op.out, limit=float(op.limit))


@runs(ops.Repair)
def repair(gpu: Gpu, op: ops.Repair) -> None:
    gpu.launch_map("repair", op.src, op.out)


@runs(ops.Load)
def load(gpu: Gpu, op: ops.Load) -> None:
    gpu.launch_map("spread", op.out, op.out, values=gpu.array(op, "constant"))
