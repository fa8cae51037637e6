"""Dense layers by cuBLAS; locally connected layers and deconvolutions by plain loops."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.arguments import KINDS
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target, runs
from engine.plan import ops


def _weights(target: Target, op: ops.MatMul, constants: Arrays) -> Arrays:
    """Return weights with inputs in the memory order of the source: channels innermost."""
    channels, height, width = op.src.shape.sides
    weight = constants["weight"].reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    kind = np.float16 if target.precision == "float16" else np.float32
    return {**constants, "weight": np.ascontiguousarray(weight, dtype=kind)}


def _workspace(target: Target, op: ops.MatMul) -> int:
    return target.rows(op.src) * op.src.shape.size * target.value_bytes


@runs(ops.MatMul, prepare=_weights, workspace=_workspace)
def matmul(gpu: Gpu, op: ops.MatMul) -> None:
    src, row_pitch = _rows(gpu, op.src)
    rows, outputs, depth = gpu.rows(op.out), op.out.shape.channels, op.src.shape.size
    product = product_of(gpu, op.out, (rows, outputs, depth), row_pitch)
    gpu.blas.multiply(product, src, gpu.array(op, "weight"), gpu[op.out])
    bias = gpu.array(op, "bias")
    if bias or op.activation != "linear":
        arguments = {"bias": bias, "residual": 0, "residual_pitch": 0, "pixels": rows}
        arguments |= {"kind": KINDS[op.activation], "last": KINDS["linear"]}
        gpu.storing(op.out).launch_map("bias_activate", op.out, op.out, **arguments)


def product_of(gpu: Gpu, out: ops.Tensor, sizes: tuple[int, int, int], a_pitch: int) -> Product:
    """Return a product of these rows, columns and depth that writes a tensor."""
    is_half, is_half_out = gpu.target.precision == "float16", gpu.target.bytes_of(out) == 2
    return Product(*sizes, a_pitch, gpu.pitch(out), is_half=is_half, is_half_out=is_half_out)


def _rows(gpu: Gpu, src: ops.Tensor) -> tuple[int, int]:
    """Return a pointer to contiguous rows, and the values from one to the next.

    Inside a concatenation the pixels of a row are not contiguous: they are copied first.
    """
    channels = src.shape.channels
    if gpu.pitch(src) == channels or src.shape.area == 1:
        return gpu[src], gpu.pitch(src) * src.shape.area
    gpu.launch_map("copy_channels", src, src, out=gpu.workspace, out_pitch=channels)
    return gpu.workspace, src.shape.size


def _local_weights(target: Target, op: ops.LocalConv2d, constants: Arrays) -> Arrays:
    """Return weights (cells, window, filters) and bias (cells, filters): filters innermost."""
    weight = constants["weight"].transpose(0, 2, 1)
    bias = constants["bias"].reshape(op.out.shape.channels, -1).T
    return {name: np.ascontiguousarray(a) for name, a in (("weight", weight), ("bias", bias))}


@runs(ops.LocalConv2d, prepare=_local_weights)
def local_conv(gpu: Gpu, op: ops.LocalConv2d) -> None:
    gpu.launch_op("local_conv", op)


def _deconv_weights(target: Target, op: ops.Deconv2d, constants: Arrays) -> Arrays:
    """Return weights (size, size, channels, filters): filters innermost."""
    weight = constants["weight"].transpose(2, 3, 0, 1)
    return {**constants, "weight": np.ascontiguousarray(weight)}


@runs(ops.Deconv2d, prepare=_deconv_weights)
def deconv(gpu: Gpu, op: ops.Deconv2d) -> None:
    gpu.launch_op("deconv", op, size=op.weight.shape[2])
