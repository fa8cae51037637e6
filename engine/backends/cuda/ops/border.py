"""Copy between the host's layout, float32 (rows, channels, height, width), and tensors."""

from __future__ import annotations

from engine.backends.cuda.ops.gpu import THREADS, Gpu
from engine.backends.cuda.ops.target import COLOUR_PITCH, COLOURS
from engine.plan.ops import Tensor

_TILE_PIXELS, _TILE_CHANNELS = 64, 32  # as in leave_tiles
_LEAST_TILED = 1 << 17  # values; smaller maps are not worth tiles
_PIXELS_AT_ONCE = 4  # per work item of enter_colours


def read_images(gpu: Gpu, out: Tensor, src: int) -> None:
    """Enqueue filling a tensor from images; `src` points to their pointer, read at run time."""
    storing, pixels = gpu.storing(out), gpu.pixels(out)
    if (out.shape.channels, gpu.pitch(out)) == (COLOURS, COLOUR_PITCH):
        at_once = _PIXELS_AT_ONCE if out.shape.area % _PIXELS_AT_ONCE == 0 else 1
        storing.launch_map("enter_colours", out, out, pixels // at_once, src_pointer=src)
    else:
        storing.launch_map("enter", out, out, src_pointer=src)


def read_pictures(gpu: Gpu, out: Tensor, table: int) -> None:
    """Enqueue scaling pictures into a tensor; each has an entry in the table."""
    gpu.storing(out).launch_map("enter_pictures", out, out, gpu.pixels(out), pictures=table)


def write_output(gpu: Gpu, src: Tensor, out: int) -> None:
    """Enqueue copying a tensor to a pointer."""
    storing, values = gpu.storing(src), gpu.values(src)
    if src.shape.area < _TILE_PIXELS or values < _LEAST_TILED:
        storing.launch_map("leave", src, src, out=out)
        return
    tiles = -(-gpu.pixels(src) // _TILE_PIXELS) * -(-src.shape.channels // _TILE_CHANNELS)
    grid = min(tiles, gpu.most_blocks), 1, 1
    known = storing.arguments(None, src, src)
    storing.launch_grid("leave_tiles", grid, THREADS, known, out=out)


def find_largest(gpu: Gpu, src: Tensor, out: int) -> None:
    """Enqueue finding the largest magnitude of a tensor."""
    gpu.storing(src).launch_map("largest", src, src, out=out)


def fill_with_noise(gpu: Gpu, out: int, size: int) -> None:
    """Enqueue filling `size` bytes, a multiple of 4, with values to measure with."""
    gpu.launch("noise", size // 4, out=out, words=size // 4)
