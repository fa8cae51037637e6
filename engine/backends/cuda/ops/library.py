"""One short function per op: which kernel runs it, over how many work items, with what."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops import average_pool, gate, heads, windows
from engine.backends.cuda.ops.gpu import KINDS, Arrays, Gpu, Target, runs
from engine.plan import ops
from engine.plan.shapes import Shape

__all__ = ["average_pool", "gate", "heads"]  # importing them registers what they run

SOFTMAX_THREADS = 128
CHANNEL_KINDS = {"positive": 0, "softmax": 1, "softmax_max": 2}


# ---------------------------------------------------------------- value by value


@runs(ops.Normalise)
def normalise(gpu: Gpu, op: ops.Normalise) -> None:
    gpu.launch(
        "normalise",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out]),
        *(gpu.array(op, name) for name in ("mean", "variance", "scale", "bias")),
        *(gpu.pixels(op.out), op.out.shape.channels, gpu.pitch(op.src), gpu.pitch(op.out)),
    )


@runs(ops.Activate)
def activate(gpu: Gpu, op: ops.Activate) -> None:
    windows.launch(
        gpu,
        "activate_values",
        (op.src, op.out),
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out), KINDS[op.activation]),
    )


@runs(ops.Add)
def add(gpu: Gpu, op: ops.Add) -> None:
    kind = KINDS[op.activation]
    shape = op.out.shape
    if len(op.sources) == 2 and op.weights is None:
        a, b = op.sources
        sides = shape.sides[1:]
        if a.shape == shape and b.shape.sides[1:] == sides:
            windows.launch(
                gpu,
                "add_two",
                (a, b, op.out),
                *(gpu[a], gpu[b], gpu[op.out], gpu.pixels(op.out), shape.channels),
                min(shape.channels, b.shape.channels),
                *(gpu.pitch(a), gpu.pitch(b), gpu.pitch(op.out), kind),
            )
            return
        is_quartered = a.shape == shape and b.shape.area == 4 * shape.area
        if is_quartered and gpu.packs(a, b, op.out):
            gpu.launch(
                "add_quarters_packed",
                gpu.pixels(op.out) * shape.channels * gpu.target.value_bytes // 16,
                *(gpu[a], gpu[b], gpu[op.out], gpu.pixels(op.out), shape.channels, shape.area),
                *(b.shape.channels, gpu.pitch(a), gpu.pitch(b), gpu.pitch(op.out), kind),
            )
            return
    weights = gpu.array(op, "weights")
    columns = 1 if op.weights is None else op.weights.shape[1]
    for index, source in enumerate(op.sources):
        gpu.launch(
            "add_flat",
            gpu.pixels(op.out) * shape.channels,
            *(gpu[source], weights and weights + 4 * index * columns, gpu[op.out]),
            *(gpu.rows(op.out), shape.channels, shape.area),
            *(source.shape.channels, source.shape.area, gpu.pitch(source), gpu.pitch(op.out)),
            *(int(columns > 1), int(index == 0), int(index == len(op.sources) - 1), kind),
        )


@runs(ops.Multiply)
def multiply(gpu: Gpu, op: ops.Multiply) -> None:
    windows.multiply(gpu, op)


@runs(ops.Mix)
def mix(gpu: Gpu, op: ops.Mix) -> None:
    tensors = (op.gate, op.yes, op.no, op.out)
    gpu.launch(
        "mix",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[tensor] for tensor in tensors),
        *(gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(tensor) for tensor in tensors),
    )


@runs(ops.Clip)
def clip(gpu: Gpu, op: ops.Clip) -> None:
    gpu.launch(
        "clip",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out), float(op.limit)),
    )


@runs(ops.Repair)
def repair(gpu: Gpu, op: ops.Repair) -> None:
    gpu.launch(
        "repair",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out]),
        *(gpu.rows(op.out), op.out.shape.channels, op.out.shape.area),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
    )


@runs(ops.Load)
def load(gpu: Gpu, op: ops.Load) -> None:
    gpu.launch(
        "spread",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu.array(op, "constant"), gpu[op.out]),
        *(gpu.rows(op.out), op.out.shape.channels, op.out.shape.area, gpu.pitch(op.out)),
    )


# ---------------------------------------------------------------- across channels


@runs(ops.NormaliseChannels)
def normalise_channels(gpu: Gpu, op: ops.NormaliseChannels) -> None:
    gpu.launch(
        "normalise_channels",
        gpu.pixels(op.out),
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out), CHANNEL_KINDS[op.kind]),
    )


@runs(ops.L2Norm)
def l2_norm(gpu: Gpu, op: ops.L2Norm) -> None:
    gpu.launch(
        "l2_norm",
        gpu.pixels(op.out),
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
    )


@runs(ops.LocalNorm)
def local_norm(gpu: Gpu, op: ops.LocalNorm) -> None:
    gpu.launch(
        "local_norm",
        gpu.pixels(op.out),
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out), op.out.shape.channels),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
        *(op.size, float(op.alpha), float(op.beta), float(op.kappa)),
    )


def _runs_of(op: ops.Softmax) -> tuple[np.ndarray, np.ndarray]:
    """Where each run of one row begins, and how long it is."""
    repeats = op.src.shape.size // sum(op.runs)
    lengths = np.tile(np.array(op.runs, dtype=np.int32), repeats)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32)
    return starts, lengths


def _softmax_tables(target: Target, op: ops.Softmax, constants: Arrays) -> Arrays:
    starts, lengths = _runs_of(op)
    return {"starts": starts, "lengths": lengths}


@runs(ops.Softmax, prepare=_softmax_tables)
def softmax(gpu: Gpu, op: ops.Softmax) -> None:
    runs_in_row = len(op.runs) * (op.src.shape.size // sum(op.runs))
    gpu.launch_grid(
        "softmax",
        (min(gpu.rows(op.out) * runs_in_row, 65535), 1, 1),
        SOFTMAX_THREADS,
        *(gpu[op.src], gpu[op.out], gpu.array(op, "starts"), gpu.array(op, "lengths")),
        *(gpu.rows(op.out), runs_in_row, op.src.shape.channels, op.src.shape.area),
        *(op.out.shape.channels, op.out.shape.area, gpu.pitch(op.src), gpu.pitch(op.out)),
        float(op.temperature),
    )


# ---------------------------------------------------------------- windows


@runs(ops.MaxPool)
def max_pool(gpu: Gpu, op: ops.MaxPool) -> None:
    windows.max_pool(gpu, op.src, op.out, op.window)


@runs(ops.MaxPoolDepth)
def max_pool_depth(gpu: Gpu, op: ops.MaxPoolDepth) -> None:
    gpu.launch(
        "max_pool_depth",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out], gpu.pixels(op.out)),
        *(op.out.shape.channels, op.src.shape.channels, gpu.pitch(op.src), gpu.pitch(op.out)),
    )


# ---------------------------------------------------------------- moving values


@runs(ops.Concat)
def concat(gpu: Gpu, op: ops.Concat) -> None:
    size = gpu.target.value_bytes
    values = 16 // size
    for part in op.parts:
        src = gpu[part.src] + part.first * size
        out = gpu[op.out] + part.at * size
        pitches = (gpu.pitch(part.src), gpu.pitch(op.out))
        packs = not any(n % values for n in (*pitches, part.count))
        packs = packs and src % 16 == 0 and out % 16 == 0
        gpu.launch(
            "copy_channels_packed" if packs else "copy_channels",
            gpu.pixels(op.out) * part.count // (values if packs else 1),
            *(src, out, gpu.pixels(op.out), part.count, *pitches),
        )


@runs(ops.Reshape)
def reshape(gpu: Gpu, op: ops.Reshape) -> None:
    gpu.launch(
        "reshape",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out], gpu.rows(op.out)),
        *(op.out.shape.channels, op.out.shape.area, op.src.shape.channels, op.src.shape.area),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
    )


@runs(ops.Upsample)
def upsample(gpu: Gpu, op: ops.Upsample) -> None:
    windows.upsample(gpu, op)


@runs(ops.BlockSum)
def block_sum(gpu: Gpu, op: ops.BlockSum) -> None:
    gpu.launch(
        "block_sum",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out], gpu.rows(op.out), op.out.shape.channels),
        *windows.maps(op.src.shape, op.out.shape),
        *(gpu.pitch(op.src), gpu.pitch(op.out), op.stride, float(op.scale)),
    )


@runs(ops.Reorg)
def reorg(gpu: Gpu, op: ops.Reorg) -> None:
    gpu.launch(
        "reorg",
        gpu.rows(op.out) * op.grid.size,
        *(gpu[op.src], gpu[op.out], gpu.rows(op.out)),
        *(op.out.shape.channels, op.out.shape.area, op.src.shape.channels, op.src.shape.area),
        *(gpu.pitch(op.src), gpu.pitch(op.out), op.stride, *op.grid.sides, int(op.reverse)),
    )


@runs(ops.Crop)
def crop(gpu: Gpu, op: ops.Crop) -> None:
    gpu.launch(
        "crop",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu[op.out], gpu.rows(op.out), op.out.shape.channels),
        *windows.maps(op.src.shape, op.out.shape),
        *(gpu.pitch(op.src), gpu.pitch(op.out)),
        *(op.top, op.left, float(op.scale), float(op.shift)),
    )


# ---------------------------------------------------------------- time steps


def _copy_rows(gpu: Gpu, src: int, out: int, shape: Shape, pitches: tuple[int, int]) -> None:
    """Copy the rows of one time step; rows of one step are neighbours in memory."""
    pixels = gpu.sequences * shape.area
    gpu.launch(
        "copy_channels",
        pixels * shape.channels,
        *(src, out, pixels, shape.channels, *pitches),
    )


def _step(gpu: Gpu, tensor: ops.Tensor, step: int) -> int:
    """The pointer to the first row of time step `step`."""
    values = step * gpu.sequences * tensor.shape.area * gpu.pitch(tensor)
    return gpu[tensor] + values * gpu.target.value_bytes


@runs(ops.TakeStep)
def take_step(gpu: Gpu, op: ops.TakeStep) -> None:
    pitches = (gpu.pitch(op.src), gpu.pitch(op.out))
    _copy_rows(gpu, _step(gpu, op.src, op.step), gpu[op.out], op.out.shape, pitches)


@runs(ops.JoinSteps)
def join_steps(gpu: Gpu, op: ops.JoinSteps) -> None:
    for step, source in enumerate(op.sources):
        pitches = (gpu.pitch(source), gpu.pitch(op.out))
        _copy_rows(gpu, gpu[source], _step(gpu, op.out, step), op.out.shape, pitches)


@runs(ops.Store)
def store(gpu: Gpu, op: ops.Store) -> None:
    pitches = (gpu.pitch(op.src), gpu.pitch(op.out))
    _copy_rows(gpu, gpu[op.src], gpu[op.out], op.out.shape, pitches)


# ---------------------------------------------------------------- sums of products


def _matrix(target: Target, op: ops.MatMul, constants: Arrays) -> Arrays:
    """Weights with their inputs in the order in which the source lies: channels innermost."""
    channels, height, width = op.src.shape.sides
    weight = constants["weight"].reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    kind = np.float16 if target.precision == "float16" else np.float32
    return {**constants, "weight": np.ascontiguousarray(weight, dtype=kind)}


def _gathered_bytes(target: Target, op: ops.MatMul) -> int:
    return target.rows(op.src) * op.src.shape.size * target.value_bytes


@runs(ops.MatMul, prepare=_matrix, workspace=_gathered_bytes)
def matmul(gpu: Gpu, op: ops.MatMul) -> None:
    src, depth = gpu[op.src], op.src.shape.size
    rows, outputs = gpu.rows(op.out), op.out.shape.channels
    if gpu.pitch(op.src) != op.src.shape.channels and op.src.shape.area > 1:
        # inside a concatenation the pixels of a row are not neighbours
        channels = op.src.shape.channels
        pixels = gpu.pixels(op.src)
        gpu.launch(
            "copy_channels",
            pixels * channels,
            *(src, gpu.workspace, pixels, channels, gpu.pitch(op.src), channels),
        )
        src, row_pitch = gpu.workspace, depth
    else:
        row_pitch = gpu.pitch(op.src) * op.src.shape.area
    is_half = gpu.target.precision == "float16"
    product = Product(
        *(rows, outputs, depth),
        *(row_pitch, depth, gpu.pitch(op.out)),
        transpose_b=True,
        is_half=is_half,
        is_half_out=gpu.target.bytes_of(op.out) == 2,
    )
    gpu.blas.multiply(product, src, gpu.array(op, "weight"), gpu[op.out])
    bias = gpu.array(op, "bias")
    if bias or op.activation != "linear":
        pitch = gpu.pitch(op.out)
        gpu.storing(op.out).launch(
            "bias_activate",
            rows * outputs,
            *(gpu[op.out], bias, 0, gpu[op.out], rows, outputs),
            *(pitch, 0, pitch, KINDS[op.activation], 0),
        )


def _local_weights(target: Target, op: ops.LocalConv2d, constants: Arrays) -> Arrays:
    """Weights (cells, window, filters) and bias (cells, filters): filters innermost."""
    weight = constants["weight"].transpose(0, 2, 1)
    bias = constants["bias"].reshape(op.out.shape.channels, -1).T
    return {name: np.ascontiguousarray(a) for name, a in (("weight", weight), ("bias", bias))}


@runs(ops.LocalConv2d, prepare=_local_weights)
def local_conv(gpu: Gpu, op: ops.LocalConv2d) -> None:
    gpu.launch(
        "local_conv",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), gpu[op.out]),
        *(gpu.rows(op.out), op.src.shape.channels, op.out.shape.channels),
        *windows.maps(op.src.shape, op.out.shape),
        *(gpu.pitch(op.src), gpu.pitch(op.out), op.size, op.stride, op.padding),
    )


def _deconv_weights(target: Target, op: ops.Deconv2d, constants: Arrays) -> Arrays:
    """Weights (size, size, channels, filters): filters innermost."""
    weight = constants["weight"].transpose(2, 3, 0, 1)
    return {**constants, "weight": np.ascontiguousarray(weight)}


@runs(ops.Deconv2d, prepare=_deconv_weights)
def deconv(gpu: Gpu, op: ops.Deconv2d) -> None:
    gpu.launch(
        "deconv",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), gpu[op.out]),
        *(gpu.rows(op.out), op.src.shape.channels, op.out.shape.channels),
        *windows.maps(op.src.shape, op.out.shape),
        *(gpu.pitch(op.src), gpu.pitch(op.out), op.weight.shape[2], op.stride, op.padding),
    )
