"""Tiles of the tensor-core kernels: each is compiled by itself, when it is first used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from engine.backends.cuda import compiler, wgmma

HOPPER = (9, 0)
MODES = {"float16": 0, "tf32": 1, "float32": 2}  # MODE of kernels/tensor/hopper_conv.cu
_SUM_PADDING = 8  # floats between rows of sums, as SUM_PITCH in the kernel
_BARRIERS = 16  # bytes of both barriers of a stage


@dataclass(frozen=True)
class Tile:
    """rows x columns of the output for a block; slices of `depth` values along k."""

    rows: int
    columns: int
    depth: int
    stages: int
    consumers: int
    blocks: int  # resident on one multiprocessor
    mode: int
    kernel: str = "hopper_conv"

    @property
    def value_bytes(self) -> int:
        return 2 if self.mode == 0 else 4

    @property
    def threads(self) -> int:
        return 128 * self.consumers + 32

    @property
    def stage_bytes(self) -> int:
        weights = self.columns * (2 if self.mode == 2 else 1)
        return (self.rows + weights) * self.depth * self.value_bytes

    @property
    def shared_bytes(self) -> int:
        """hopper_conv's ring, or the sums that take its place, and what aligns it."""
        ring = self.stages * (self.stage_bytes + _BARRIERS)
        sums = self.rows * (self.columns + _SUM_PADDING) * 4
        return max(ring, sums) + 1024


def source(tile: Tile) -> str:
    """The kernel's text for one tile, everything that it includes written out."""
    folder = files("engine.backends.cuda").joinpath("kernels")
    texts = {
        '#include "hopper_tile.cuh"': folder.joinpath("tensor", "hopper_tile.cuh").read_text(
            "utf-8"
        ),
        '#include "hopper.cuh"': folder.joinpath("tensor", "hopper.cuh").read_text("utf-8"),
        '#include "common.cuh"': folder.joinpath("common.cuh").read_text("utf-8"),
        '#include "wgmma.cuh"': wgmma.header(tile.columns, tile.mode),
        "#pragma once": "",
    }
    defines = {
        "BM": tile.rows,
        "BN": tile.columns,
        "BK": tile.depth,
        "STAGES": tile.stages,
        "CONSUMERS": tile.consumers,
        "BLOCKS": tile.blocks,
        "MODE": tile.mode,
    }
    text = folder.joinpath("tensor", f"{tile.kernel}.cu").read_text("utf-8")
    for line, contents in texts.items():
        text = text.replace(line, contents)
    heads = [f"#define {name} {value}" for name, value in defines.items()]
    return "\n".join([*heads, compiler.activate_function(), text])


@lru_cache(maxsize=256)
def image(tile: Tile) -> bytes:
    """The compiled tile, from the cache if it was ever compiled here."""
    tools = compiler.toolkit()
    defines = ("-DSTORE_HALF", "-use_fast_math") if tile.mode == 0 else ()
    text = source(tile)
    facts = [text, *defines, tools.identity]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return compiler.cached(key, lambda: compiler.compile_image(text, defines, HOPPER, tools))
