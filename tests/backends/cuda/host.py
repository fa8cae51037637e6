"""Runs the kernels' own text on the CPU: g++ compiles it behind host.h, ops launch it there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.backends.cuda import compiler
from engine.backends.cuda.blas import Product
from engine.backends.cuda.gpu import DECODERS, RUNNERS, Candidates, Gpu, Place, Target
from engine.plan.ops import Head, Op, Tensor

HEADER = Path(__file__).with_name("host.h")
GXX = shutil.which("g++")
_C_TYPES = {
    "P": ctypes.c_void_p,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "f": ctypes.c_float,
}
_DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")


def source() -> str:
    """The translation unit of the kernels as C++, with a function to run each on the host."""
    unit = _DYNAMIC.sub(r"\1* \2 = (\1*)dynamic_shared.data();", compiler.translation_unit())
    runners = []
    for name, arguments in compiler._KERNEL.findall(unit):
        names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", arguments))
        body = unit[unit.index(f"void {name}(") :]
        body = body[: body.find('\nextern "C"') if '\nextern "C"' in body else None]
        has_barriers = str("__syncthreads" in body).lower()
        runners.append(
            f'extern "C" void host_{name}(int blocks, int threads, int shared, {arguments}) {{\n'
            f"run_on_host(blocks, threads, shared, {has_barriers}, [=] {{ {name}({names}); }});\n}}"
        )
    return "\n".join([f'#include "{HEADER}"', unit, '#line 1 "runners"', *runners])


def build() -> ctypes.CDLL:
    """Compile once per text; the library stays in the folder for temporary files."""
    assert GXX is not None
    text = source()
    key = hashlib.sha256((text + HEADER.read_text()).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"engine-kernels-on-host-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    library = folder / f"{key}.so"
    if not library.exists():
        unit = folder / f"{key}.{os.getpid()}.cpp"
        made = unit.with_suffix(".so")
        unit.write_text(text)
        options = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-w", "-ffp-contract=off"]
        done = subprocess.run(
            [GXX, *options, "-o", made, unit], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        made.replace(library)
        unit.unlink()
    return ctypes.CDLL(str(library))


class HostKernels:
    """Stands in for the functions of a compiled image."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._codes = compiler.signatures(compiler.translation_unit())
        self.launched: list[str] = []

    def get(self, name: str, *, shared: int = 0) -> Any:
        function = getattr(self._library, f"host_{name}")
        function.argtypes = [ctypes.c_int] * 3 + [_C_TYPES[code] for code in self._codes[name]]

        def call(
            grid: tuple[int, ...],
            block: tuple[int, ...],
            stream: object,
            *arguments: Any,
            shared_size: int = 0,
        ) -> None:
            self.launched.append(name)
            function(min(grid[0], 4), block[0], shared_size, *arguments)

        return SimpleNamespace(prepared_async_call=call)


class HostBlas:
    """Matrix products on host pointers, by NumPy in float64."""

    def multiply(self, product: Product, a: int, b: int, out: int) -> None:
        p = product
        for index in range(p.count):
            left = _matrix(a, index * p.a_step, p.rows, p.depth, p.a_pitch, p.transpose_a)
            right = _matrix(b, index * p.b_step, p.depth, p.columns, p.b_pitch, p.transpose_b)
            result = _matrix(out, index * p.out_step, p.rows, p.columns, p.out_pitch, False)
            sums = left.astype(np.float64) @ right.astype(np.float64)
            result[...] = sums + result if p.is_added else sums


def _matrix(
    pointer: int, offset: int, rows: int, columns: int, pitch: int, is_transposed: bool
) -> np.ndarray:
    if is_transposed:
        return _matrix(pointer, offset, columns, rows, pitch, False).T
    pitch = pitch or columns
    values = (ctypes.c_float * ((rows - 1) * pitch + columns)).from_address(pointer + 4 * offset)
    flat = np.ctypeslib.as_array(values)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * pitch, 4))


class HostRun:
    """Memory for the tensors of one op, and a Gpu whose pointers lead into it."""

    def __init__(
        self,
        library: ctypes.CDLL,
        item: Op | Head,
        tensors: Mapping[Tensor, np.ndarray | None],
        constants: Mapping[str, np.ndarray],
        *,
        batch: int,
        margin: int = 0,
        algorithm: str | None = None,
    ) -> None:
        """`margin` channels lie on either side of every tensor, as inside a concatenation."""
        self.target = Target(batch, "float32", (7, 5), 4, algorithm)
        self.kernels = HostKernels(library)
        self._keep: list[np.ndarray] = []
        self._maps = {
            tensor: self._place(tensor, values, margin) for tensor, values in tensors.items()
        }
        runner = RUNNERS[type(item)] if isinstance(item, Op) else DECODERS[type(item)]
        arrays = {
            (item, name): self._hold(values)
            for name, values in runner.prepare(self.target, item, constants).items()
        }
        workspace = self._hold(np.full(runner.workspace(self.target, item) + 4, 0x7F, np.uint8))
        self.counter = np.zeros(1, np.uint32)
        self.candidates: np.ndarray | None = None
        self._thresholds = np.zeros(2, np.float32)
        places = None
        if isinstance(item, Head):
            cells = item.src.shape.size
            self.candidates = np.zeros((batch * cells, 6 + item.classes), np.float32)
            places = Candidates(
                self._hold(self.counter),
                self._hold(self.candidates),
                6 + item.classes,
                cells,
                {item: 0},
                self._hold(self._thresholds),
                self._hold(self._thresholds) + 4,
            )
        self.gpu = Gpu(
            self.target,
            kernels=self.kernels,  # type: ignore[arg-type]
            blas=HostBlas(),  # type: ignore[arg-type]
            stream=None,
            places={
                tensor: Place(view.ctypes.data, view.strides[2] // 4)
                for tensor, view in self._maps.items()
            },
            arrays=arrays,
            workspace=workspace,
            candidates=places,
        )
        self._runner, self._item = runner, item

    def run(self) -> None:
        self._runner.run(self.gpu, self._item)

    def decode(self, threshold: float, hierarchy: float) -> list[np.ndarray]:
        """Rows of each image in the order of their numbers."""
        self._thresholds[:] = threshold, hierarchy
        self.run()
        assert self.candidates is not None
        found = self.candidates[: self.counter[0]]
        numbers = found[:, 0].copy().view(np.uint32)
        order = np.argsort(numbers)
        found, numbers = found[order, 1:], numbers[order]
        per_row = self._item.src.shape.size
        return [found[numbers // per_row == row] for row in range(self.target.batch)]

    def read(self, tensor: Tensor) -> np.ndarray:
        """(rows, channels, height, width)"""
        return self._maps[tensor].transpose(0, 3, 1, 2).copy()

    def _place(self, tensor: Tensor, values: np.ndarray | None, margin: int) -> np.ndarray:
        rows = self.target.rows(tensor)
        channels, height, width = tensor.shape.sides
        root = np.full((rows, height, width, channels + 2 * margin), np.nan, np.float32)
        self._keep.append(root)
        view = root[..., margin : margin + channels]
        if values is not None:
            view[...] = values.transpose(0, 2, 3, 1)
        return view

    def _hold(self, values: np.ndarray) -> int:
        values = np.ascontiguousarray(values)
        self._keep.append(values)
        return values.ctypes.data
