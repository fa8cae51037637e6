"""Ops that copy values to other places."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import Gpu, runs
from engine.plan import int8, ops


@runs(ops.Concat)
def concat(gpu: Gpu, op: ops.Concat) -> None:
    size = gpu.target.value_bytes
    values = 16 // size
    for part in op.parts:
        src, out = gpu[part.src] + part.first * size, gpu[op.out] + part.at * size
        sizes = gpu.pitch(part.src), gpu.pitch(op.out), part.count
        packs = not any(n % values for n in sizes) and src % 16 == 0 and out % 16 == 0
        gpu.launch_map(
            "copy_channels_packed" if packs else "copy_channels",
            part.src,
            op.out,
            gpu.pixels(op.out) * part.count // (values if packs else 1),
            src=src,
            out=out,
            channels=part.count,
        )


@runs(ops.Convert)
def convert(gpu: Gpu, op: ops.Convert) -> None:
    before, after = (gpu.target.scales.get(each) for each in (op.src, op.out))
    if after is not None:
        inverse = float(int8.inverse(after))
        gpu.storing(op.src).launch_packed("quantise", op, inverse=inverse)
    elif before is not None:
        gpu.storing(op.out).launch_packed("dequantise", op, scale=before)
    else:  # in float32, to examine a program
        gpu.launch_packed("copy_channels", op)


@runs(ops.Reorg)
def reorg(gpu: Gpu, op: ops.Reorg) -> None:
    grid = dict(zip(("grid_c", "grid_h", "grid_w"), op.grid.sides, strict=True))
    items = gpu.rows(op.out) * op.grid.size
    gpu.launch_op("reorg", op, items, **grid)


# ---------------------------------------------------------------- time steps


@runs(ops.TakeStep)
def take_step(gpu: Gpu, op: ops.TakeStep) -> None:
    _copy_rows(gpu, op.src, op.out, src=_step(gpu, op.src, op.step))


@runs(ops.JoinSteps)
def join_steps(gpu: Gpu, op: ops.JoinSteps) -> None:
    for step, source in enumerate(op.sources):
        _copy_rows(gpu, source, op.out, out=_step(gpu, op.out, step))


@runs(ops.Store)
def store(gpu: Gpu, op: ops.Store) -> None:
    _copy_rows(gpu, op.src, op.out)


def _copy_rows(gpu: Gpu, src: ops.Tensor, out: ops.Tensor, /, **pointers: int) -> None:
    """Copy the rows of one time step, which are contiguous in memory."""
    pixels = gpu.sequences * out.shape.area
    items = pixels * out.shape.channels
    gpu.launch_map("copy_channels", src, out, items, pixels=pixels, **pointers)


def _step(gpu: Gpu, tensor: ops.Tensor, step: int) -> int:
    """Return the pointer to the first row of a time step."""
    values = step * gpu.sequences * tensor.shape.area * gpu.pitch(tensor)
    return gpu[tensor] + values * gpu.target.value_bytes
