"""Run the tensor-core kernels' text on the CPU with warps.h, and sm90.h for Hopper."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda.driver import launch
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import Gpu, Place
from engine.backends.cuda.ops.target import Target, most_shared_bytes
from engine.plan.ops import Chain, Conv2d
from tests.backends.cuda import host

Array = NDArray[Any]

_RUNNER = """
extern "C" void run(int blocks, int threads, int shared, int together, int first, %s)
{
    const auto kernel = [=] { %s; };
    run_warps(blocks, threads, shared, together, first, work_of(kernel));
}
"""
_KINDS = {1: np.int8, 2: np.float16, 4: np.float32}
_UNWRITTEN = 77  # an integer in memory that no kernel wrote
_SHARED = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char memory\[\];")


class TensorMap(ctypes.Structure):
    """The struct of the same name in sm90.h."""

    _fields_ = (
        ("from_", ctypes.c_void_p),
        *(
            (name, ctypes.c_longlong)
            for name in (
                *("is_tf32", "value_bytes", "channels", "width", "height", "rows", "row_bytes"),
                *("first_x", "first_y", "last_x", "last_y", "stride_x", "stride_y"),
            )
        ),
        *(
            (name, ctypes.c_int)
            for name in ("box_channels", "box_pixels", "box_width", "box_height")
        ),
    )

    @classmethod
    def of(
        cls,
        windows: launch.Windows,
        *,
        channels: int,
        pixels: int = 0,
        width: int = 0,
        height: int = 0,
        stride: int = 1,
    ) -> TensorMap:
        w, op = windows, windows.op
        depth, rows, columns = op.src.shape.sides
        top, left, bottom, right = op.padding
        reach_y, reach_x = ((k - 1) * d for k, d in zip(op.kernel, op.dilation, strict=True))
        return cls(
            *(w.pointer, w.kind == launch.TF32, w.value_bytes),
            *(depth, columns, rows, w.rows, w.pitch * w.value_bytes),
            *(-left, -top, columns - 1 + right - reach_x, rows - 1 + bottom - reach_y),
            *((op.stride[1], op.stride[0]) if pixels else (stride, stride)),
            *(channels, pixels, width, height),
        )


@dataclass(frozen=True)
class _OnHost:
    tile: Any

    @property
    def headers(self) -> Mapping[str, str]:
        warps, sm90 = (host.FOLDER.joinpath(name).read_text() for name in ("warps.h", "sm90.h"))
        return {"mma_ptx.cuh": warps, "sm90_ptx.cuh": warps + sm90, "wgmma.cuh": ""}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tile, name)


@lru_cache(maxsize=64)
def build(tile: Tile, *, is_turing: bool) -> ctypes.CDLL:
    text = Tile.text(_OnHost(tile))
    text, count = _SHARED.subn("unsigned char* memory = block_memory;", text)
    assert count == 1
    text = text.replace("__syncthreads()", "sync_block()")
    defines = [each for each in tile.options("") if each[:2] == "-D"]
    if is_turing:
        defines.append("-DHELD_COPIES")
    heads = '#include "host.h"\n#define __grid_constant__\n'
    kinds = re.findall(r"const __grid_constant__ (\w+) ", text)
    takes = ", ".join(f"const {kind}* argument{i}" for i, kind in enumerate(kinds))
    given = ", ".join(f"*argument{i}" for i in range(len(kinds)))
    runner = _RUNNER % (takes, f"{tile.kernel}({given})")
    # Compiling a tile takes longer than running it, except what warps.h and sm90.h call FAST.
    return host.compile_library(heads + text + runner, defines, speed="-Og")


@dataclass(frozen=True)
class _Function:
    library: ctypes.CDLL
    shared: int
    first: int  # block to run first

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: int,
        early: bool,
        all_shared: bool,
        cluster: int = 1,
    ) -> None:
        places = map(ctypes.byref, arguments)
        self.library.run(grid[0], threads, self.shared, cluster, self.first, *places)


class _Kernels:
    def __init__(self, target: Target, first: int) -> None:
        self._target = target
        self._first = first

    def tile(self, tile: Tile) -> _Function:
        assert tile.shared_bytes <= most_shared_bytes(self._target.capability)
        library = build(tile, is_turing=self._target.capability < (8, 0))
        return _Function(library, tile.shared_bytes, self._first)


def aligned(values: Array) -> Array:
    """Return a copy aligned to 256 bytes, as device memory is."""
    room = np.empty(values.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def run(
    algorithm: Any,
    target: Target,
    op: Conv2d | Chain,
    constants: Mapping[str, Array],
    inputs: Mapping[Any, Array],
    *,
    margin: int = 0,
    room: int = 0,
    first: int = 0,
    times: int = 2,
    present: int | None = None,
    kept: dict[Any, Array] | None = None,
) -> Array:
    """Run a convolution on tensors (rows, c, h, w) inside others that are wider by two margins.

    The margins are values between the pixels of the source. Only the first rows may be present,
    as in a last batch. `kept` gets the values of other tensors that are written.
    """
    memory = {}
    for each in (*op.reads, op.out):
        channels, height, width = each.shape.sides
        kind = _KINDS[target.bytes_of(each)]
        pitch = channels + 2 * margin + (room if each == op.src else 0)
        unwritten = _UNWRITTEN if kind == np.int8 else np.nan
        wide = np.full((target.rows(each), height, width, pitch), unwritten, dtype=kind)
        if each in inputs:
            wide[..., margin : margin + channels] = inputs[each].transpose(0, 2, 3, 1)
        memory[each] = aligned(wide)
    arrays = {
        name: aligned(made) for name, made in algorithm.prepare(target, op, constants).items()
    }
    workspace = aligned(np.full(algorithm.workspace(target, op) + 4, 0xFF, np.uint8))
    gpu = Gpu(
        target,
        kernels=_Kernels(target, first),  # type: ignore[arg-type]
        blas=None,  # type: ignore[arg-type]
        stream=SimpleNamespace(handle=0),
        places={
            each: Place(values.ctypes.data + margin * values.itemsize, values.shape[-1])
            for each, values in memory.items()
        },
        arrays={(op, name): values.ctypes.data for name, values in arrays.items()},
        workspace=workspace.ctypes.data,
        sequences=target.batch if present is None else present,
    )
    maps = dict.fromkeys(("windows_map", "boxes_map"), TensorMap.of)
    with mock.patch.multiple(launch, **maps):
        for _ in range(times):
            algorithm.enqueue(gpu, op)

    def written(tensor: Any) -> Array:
        result = memory[tensor]
        end = margin + tensor.shape.channels
        is_unwritten = result == _UNWRITTEN if result.dtype == np.int8 else np.isnan(result)
        assert is_unwritten[..., :margin].all(), "written before the first channel"
        assert is_unwritten[..., end:].all(), "written behind the last channel"
        assert is_unwritten[gpu.sequences :].all(), "written behind the last row"
        return result[: gpu.sequences, ..., margin:end].transpose(0, 3, 1, 2).astype(np.float64)

    for each in kept or ():
        kept[each] = written(each)
    return written(op.out)
