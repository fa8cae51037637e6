"""3x3 at stride 1 as F(2x2, 3x3): sixteen matrix products that do 16/36 of the multiplications.

Rows are taken a few at a time, so that patches and products stay in the second cache.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

WORKSPACE_BYTES = 32 << 20
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def supports(target: Target, op: ops.Conv2d) -> bool:
    is_plain = op.stride == (1, 1) and op.dilation == (1, 1) and op.groups == 1
    return op.kernel == (3, 3) and is_plain and not op.signed and target.precision != "float16"


def _tiles(op: ops.Conv2d) -> tuple[int, int]:
    return -(-op.out.shape.height // 2), -(-op.out.shape.width // 2)


def _row_bytes(op: ops.Conv2d) -> int:
    tiles_y, tiles_x = _tiles(op)
    return 4 * 16 * tiles_y * tiles_x * (op.src.shape.channels + op.out.shape.channels)


def _rows_at_once(target: Target, op: ops.Conv2d) -> int:
    return max(1, min(target.rows(op.out), WORKSPACE_BYTES // _row_bytes(op)))


def workspace(target: Target, op: ops.Conv2d) -> int:
    return _rows_at_once(target, op) * _row_bytes(op)


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """U = G g G', as (16, channels, filters)."""
    g = constants["weight"].astype(np.float64)
    u = np.einsum("ij,ncjk,lk->ilcn", _G, g, _G).reshape(16, *g.shape[1::-1])
    return {**constants, "weight": np.ascontiguousarray(u, dtype=np.float32)}


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    (src_channels, height, width), (filters, out_h, out_w) = op.src.shape.sides, op.out.shape.sides
    tiles_y, tiles_x = _tiles(op)
    top, left, _, _ = op.padding
    residual, residual_pitch = geometry.residual(gpu, op)
    at_once, total = _rows_at_once(gpu.target, op), gpu.rows(op.out)
    for first in range(0, total, at_once):
        rows = min(at_once, total - first)
        tiles = rows * tiles_y * tiles_x
        src = gpu[op.src] + 4 * first * height * width * gpu.pitch(op.src)
        done = first * out_h * out_w
        products = gpu.workspace + 4 * 16 * tiles * src_channels
        gpu.launch(
            "winograd_input",
            tiles * src_channels,
            *(src, gpu.workspace, rows, src_channels, height, width),
            *(tiles_y, tiles_x, gpu.pitch(op.src), top, left),
        )
        product = Product(
            *(tiles, filters, src_channels),
            count=16,
            a_step=tiles * src_channels,
            b_step=src_channels * filters,
            out_step=tiles * filters,
        )
        gpu.blas.multiply(product, gpu.workspace, gpu.array(op, "weight"), products)
        gpu.launch(
            "winograd_output",
            tiles * filters,
            *(products, gpu.array(op, "bias"), residual and residual + 4 * done * residual_pitch),
            *(gpu[op.out] + 4 * done * gpu.pitch(op.out), rows, filters, out_h, out_w),
            *(tiles_y, tiles_x, residual_pitch, gpu.pitch(op.out), *geometry.kinds(op)),
        )
