"""nvcc, where it is installed, compiles every kernel for every architecture without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.backends.cuda.conv import (
    implicit_gemm,
    sm90_fused,
    sm90_splitk,
    tensor_cores,
)
from engine.backends.cuda.conv.few_channels import FewChannelsTile
from engine.backends.cuda.conv.implicit_gemm import MmaTile
from engine.backends.cuda.conv.sm90_direct_tiles import DirectTile
from engine.backends.cuda.conv.sm90_pingpong import PingPongTile
from engine.backends.cuda.conv.sm90_splitk import SplitKTile
from engine.backends.cuda.conv.sm90_swapped import SwappedTile
from engine.backends.cuda.driver import compiler, tiles
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.lower.lowered import Step
from engine.backends.cuda.ops.arguments import KINDS
from engine.backends.cuda.ops.target import Target
from tests import needs
from tests.backends.cuda.host import DEFINES
from tests.backends.cuda.test_sm90_kernels import CHAINS

NVCC = shutil.which("nvcc")
LEAKY = KINDS["leaky"], KINDS["linear"]
ARCHITECTURES = ("75", "80", "86", "90a")
READ_ALIKE = {"86": "80"}  # no text tells them apart: read once, assembled for each
HASTE = ("-Ofc=max", "--threads=0")  # nobody runs what comes of it
_DEFINED = re.compile(r"^ *# *define (\w+)", re.MULTILINE)

pytestmark = needs.program("nvcc", "nvidia-cuda-toolkit")
every_storage = pytest.mark.parametrize("precision", ["float32", "float16"])


def compile_text(
    text: str, folder: Path, architectures: Sequence[str], defines: Sequence[str]
) -> None:
    assert NVCC is not None
    unit = folder / "kernels.cu"
    unit.write_text(text)
    targets = [
        f"-gencode=arch=compute_{READ_ALIKE.get(each, each)},code=sm_{each}"
        for each in architectures
    ]
    options = ["-std=c++17", "--fatbin", "-Werror=all-warnings", *HASTE, *targets, *defines]
    done = subprocess.run(
        [NVCC, *options, "-o", folder / "kernels.fatbin", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.slow
@every_storage
def test_kernels_compile_for_the_oldest_architecture(tmp_path: Path, precision: str) -> None:
    compile_text(compiler.translation_unit(), tmp_path, ARCHITECTURES[:1], DEFINES[precision])


@pytest.mark.slow
@every_storage
def test_kernels_compile_for_every_architecture(tmp_path: Path, precision: str) -> None:
    compile_text(compiler.translation_unit(), tmp_path, ARCHITECTURES[1:], DEFINES[precision])


def hopper_tiles() -> list[Tile]:
    """The largest and the smallest tile of each precision, with whole and with short slices."""
    found: list[Tile] = []
    for mode, sides in [
        (0, sm90_splitk._HALF_TILES),
        (1, sm90_splitk._FLOAT_TILES),
        (2, sm90_splitk._FLOAT_TILES),
    ]:
        whole = 128 // (2 if mode == 0 else 4)
        for (rows, columns, stages, consumers, blocks), depth in [
            (max(sides), whole),
            (min(sides), whole // 4),
        ]:
            sizes = (rows, columns, depth, stages, consumers, blocks, mode)
            found.append(SplitKTile(*sizes, 2 if mode == 0 else 4, LEAKY, depth == whole))
    found.append(SplitKTile(128, 128, 64, 4, 2, 1, 0, 4, (KINDS["mish"], KINDS["relu6"]), False))
    linear = KINDS["linear"], KINDS["linear"]
    for is_whole in (False, True):
        found.append(SplitKTile(64, 32, 64, 8, 1, 1, 0, 4, linear, is_whole, 1))
    for out_bytes in (2, 4):  # residuals of quarters
        sizes = (64, 32, 64, 8, 1, 1, 0, out_bytes, LEAKY, True, 2)
        found += [SplitKTile(*sizes), SplitKTile(*sizes, split=2)]
        found.append(PingPongTile(128, *sizes[1:], teams=2))
    for out_bytes, (rows, columns, stages, teams, consumers, blocks) in (
        (4, (128, 128, 6, 2, 1, 1)),
        (2, (128, 64, 8, 2, 1, 1)),
    ):
        sizes = (rows, columns, 64, stages, consumers, blocks, 0, out_bytes)
        found.append(PingPongTile(*sizes, LEAKY, out_bytes == 2, teams=teams))
    found.append(PingPongTile(128, 64, 64, 8, 1, 1, 0, 4, linear, True, 1, teams=2))
    found.append(SplitKTile(64, 32, 64, 8, 1, 1, 0, 2, LEAKY, True, upsample=2))
    for out_bytes, pixels, (filters, teams, consumers, blocks) in (
        (2, 168, (128, 2, 1, 1)),
        (4, 88, (256, 1, 2, 1)),
    ):
        sizes = (pixels, filters, 64, 4, consumers, blocks, 0, out_bytes)
        found.append(SwappedTile(*sizes, LEAKY, out_bytes == 2, teams=teams))
    for out_bytes, (columns, stages, teams, blocks), taps in (
        (4, (64, 2, 4, 1), (3, 3)),
        (2, (32, 2, 3, 2), (2, 5)),
    ):
        sizes = (64, columns, 64, stages, 1, blocks, 0, out_bytes)
        found.append(DirectTile(*sizes, LEAKY, out_bytes == 2, teams=teams, taps=taps))
    card = Target(2, "float16", tensor_cores.HOPPER, 132)
    steps = (Step(chain, sm90_fused.choose(card, chain)) for chain in CHAINS.values())
    return [*found, *(each.tile(card) for each in steps)]


def compile_tiles(found: Sequence[Tile], folder: Path, architectures: Sequence[str]) -> None:
    """Compile all tiles as one text: nvcc reads CUDA's own headers once, not for each tile."""
    texts = [_alone(tile, f"{tile.kernel}_{number}") for number, tile in enumerate(found)]
    compile_text("\n".join(texts), folder, architectures, ())


def _alone(tile: Tile, name: str) -> str:
    """Return a tile's text in a namespace of its own; it leaves no macro to the next one."""
    storage = ["#define STORE_HALF"] if tiles.reads_halves(tile.mode) else []
    text = "\n".join([*storage, f'#line 1 "{tile}"', tile.text()])
    heads = [f"#define {tile.kernel} {name}", f"namespace of_{name} {{", "using ::__ldcg;"]
    macros = {tile.kernel, *_DEFINED.findall(text)}
    return "\n".join([*heads, text, "}", *(f"#undef {each}" for each in sorted(macros))])


@pytest.mark.slow
def test_tensor_core_kernels_compile_for_hopper(tmp_path: Path) -> None:
    compile_tiles(hopper_tiles(), tmp_path, ("90a",))


def portable_tiles() -> list[MmaTile | FewChannelsTile]:
    """Likewise, and a first layer; what reads one kind of values and writes the other."""
    found: list[MmaTile | FewChannelsTile] = []
    for mode in (0, 1, 2, tiles.EXACT_HALVES):
        sides = implicit_gemm._SPLIT_FLOAT_TILES if mode == 2 else implicit_gemm._TILES
        value_bytes = 2 if tiles.reads_halves(mode) else 4
        whole = 128 // value_bytes
        for (*block, stages, blocks), depth in [(max(sides), whole), (min(sides), whole // 2)]:
            found.append(MmaTile(*block, depth, stages, blocks, mode, value_bytes))
        found.append(FewChannelsTile(3, 3, 3, 32, 99 << 10, mode, value_bytes))
        if mode != 1:
            found.append(MmaTile(*block, depth, stages, blocks, mode, 6 - value_bytes))
            other = 6 - value_bytes
            found.append(FewChannelsTile(6, 1, 1, 16, 99 << 10, mode, other, is_wide=False))
            found.append(MmaTile(*block, depth, stages, blocks, mode, value_bytes, pool_area=4))
            found.append(FewChannelsTile(3, 3, 3, 16, 99 << 10, mode, value_bytes, pool_area=4))
            found.append(MmaTile(*block, depth, stages, blocks, mode, 4, yolo=1))
    return found


@pytest.mark.slow
def test_portable_tensor_core_kernels_compile_for_every_architecture(tmp_path: Path) -> None:
    compile_tiles(portable_tiles(), tmp_path, ARCHITECTURES[1:])


@pytest.mark.slow
def test_portable_tensor_core_kernels_compile_for_turing(tmp_path: Path) -> None:
    found: list[Tile] = []
    for mode in (0, tiles.EXACT_HALVES):
        found.append(MmaTile(64, 64, 32, 32, 64, 2, 3, mode, 2))
        found.append(FewChannelsTile(3, 3, 3, 32, 64 << 10, mode, 4))
    compile_tiles(found, tmp_path, ("75",))
