"""Depthwise convolutions, alone or between 1 x 1 convolutions, a block of rows at a time.

out[y, x, c] = sum over i, j of weight[c,i,j] * padded[y*stride + i, x*stride + j, c]. Weights are
repeated along x, so that NumPy's loops are long even with few channels, and one einsum multiplies
and adds all taps in one pass.

In a chain, the 1 x 1 convolution before it writes into the padded rows, and the one after it reads
the sums while they are in the cache. Rows that two blocks share are computed twice, so there are
few blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution, largest_divisor, spans, start_of
from engine.backends.cpu.conv.epilogue import Stage, epilogue, join_pixels, joins_pixels
from engine.backends.cpu.conv.gather import Geometry, PaddedRows
from engine.backends.cpu.conv.sorted_rows import SortedRows
from engine.backends.cpu.storage import Kernel
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_RUN = 2048  # values: one tap of the weights and a row of sums stay in the first-level cache
_LONG_RUN = 8192  # values: the bias is repeated to this length, as NumPy is slow on short rows
_BLOCK_BYTES = 1400 * 1024  # of padded rows
_FEWEST_SHARED = 1_100_000  # multiplications that are worth waking a second thread
_MATRIX_SPEED = 6  # how much faster a matrix product is than an einsum


def supports(op: ops.Conv2d) -> bool:
    one_each = op.is_depthwise and op.groups == op.weight.shape[0]
    return one_each and op.pool is None and not op.signed


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return Depthwise([Link(op, weight[:, 0], bias)], workers)


def prepare_chain(
    chain: ops.Chain, constants: Mapping[str, Array], workers: Workers
) -> Convolution:
    links = []
    for op in chain.links:
        weight = constants[op.weight.name]
        weight = weight[:, 0] if supports(op) else np.ascontiguousarray(weight[:, :, 0, 0].T)
        links.append(Link(op, weight, None if op.bias is None else constants[op.bias.name]))
    return Depthwise(links, workers)


@dataclass(frozen=True, eq=False)
class Link:
    """A convolution of a chain."""

    op: ops.Conv2d
    weight: Array  # (c, n), or (c, i, j) if depthwise
    bias: Array | None
    _finishes: dict[int, Stage] = field(default_factory=dict)

    def finish(self, pixels: int) -> Stage:
        """Return the epilogue for runs of `pixels` pixels."""
        if pixels not in self._finishes:
            bias = None if self.bias is None else np.tile(self.bias, pixels)
            self._finishes[pixels] = epilogue(self.op, bias)
        return self._finishes[pixels]

    def finish_of(self, sums: Array, spare: Array) -> Callable[[], None]:
        """Return a function that runs the epilogue on whole rows in place, several at a time."""
        rows, row = sums.shape
        together = largest_divisor(rows, _LONG_RUN // row)
        finish = self.finish(together * row // self.op.out.shape.channels)
        sums = sums.reshape(-1, together * row)
        spare = start_of(spare, sums.shape)
        return lambda: finish(sums, spare, sums, None)


@dataclass(frozen=True)
class ChainBlock:
    """A block of rows of one sample: its input, output and residual."""

    kind: tuple[int, int, int]
    sources: list[Array]  # for each plane of sorted columns
    out: Array
    residual: Array | None


@dataclass(frozen=True)
class ChainKernel:
    """What one worker runs, in its scratch, for blocks of one shape and position."""

    borders: list[Array]
    gathers: list[Callable[[Array], None]]
    multiply: Callable[[], None]
    finish: Callable[[Array, Array | None], None]

    def run(self, piece: ChainBlock) -> None:
        for border in self.borders:
            border.fill(0)
        for gather, source in zip(self.gathers, piece.sources, strict=True):
            gather(source)
        self.multiply()
        self.finish(piece.out, piece.residual)


class Depthwise(Convolution):
    def __init__(self, links: Sequence[Link], workers: Workers) -> None:
        middle = next(k for k, link in enumerate(links) if supports(link.op))
        self.links = links
        self.depth = links[middle]
        self.before = links[0] if middle else None
        self.after = links[-1] if middle + 1 < len(links) else None
        self.workers = workers
        self.dtype = self.depth.weight.dtype
        self.shape = self.depth.op.out.shape
        self.geometry = Geometry(self.depth.op, out_width=self.shape.width)
        self.sorted = SortedRows(self.geometry)
        self.pixels = largest_divisor(self.shape.width, _RUN // self.shape.channels)  # of one run
        self.taps = list(self.sorted.taps(self.depth.weight, self.pixels))
        self.weights = (
            *(taps.weight for taps in self.taps),
            *(link.weight for link in links if link is not self.depth),
            *(link.bias for link in links if link.bias is not None),
        )
        self.spans = spans(self.shape.height, -(-self.shape.height // self._block_count()))
        self.sizes = self._sizes(max(last - first for first, last in self.spans))
        workers.reserve(*(size * self.dtype.itemsize for size in self.sizes))

    def _block_count(self) -> int:
        """Return the fewest that fit in the cache; an even number if two threads are worthwhile."""
        padded = math.prod(self.sorted.shape(self.shape.height))
        count = -(-padded * self.dtype.itemsize // _BLOCK_BYTES)
        work = 0
        for link in self.links:
            products = link.op.out.shape.size * math.prod(link.op.weight.shape[1:])
            work += products if link is self.depth else products // _MATRIX_SPEED
        return count + count % 2 if count > 1 or work >= _FEWEST_SHARED else 1

    def _sizes(self, rows: int) -> tuple[int, int, int]:
        """Return the values of padded rows (reused for the last sums), other sums and scratch."""
        shape = self.shape
        padded, sums = math.prod(self.sorted.shape(rows)), rows * shape.width * shape.channels
        first = last = 0
        if self.before is not None:
            widest = max(plane.inner for plane in self.sorted.planes)
            first = self.geometry.padded_rows(rows) * widest * shape.channels
        if self.after is not None:
            last = rows * shape.width * self.after.op.out.shape.channels
        return max(padded, last), max(sums, first), max(sums, first, last)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        joined = joins_pixels(out, residual)
        if joined:
            out, residual = join_pixels(out), None if residual is None else join_pixels(residual)
        pieces = [
            self._piece(sample, span, out[row], None if residual is None else residual[row])
            for row, sample in enumerate(src)
            for span in self.spans
        ]
        blocks: dict[tuple[int, ...], ChainKernel] = {}

        def run_piece(worker: int, number: int) -> None:
            piece = pieces[number]
            kind = (worker, *piece.kind)
            if kind not in blocks:
                blocks[kind] = self._block(worker, piece.kind, joined)
            blocks[kind].run(piece)

        return lambda: self.workers.run(run_piece, len(pieces))

    def _piece(
        self, sample: Array, span: tuple[int, int], out: Array, residual: Array | None
    ) -> ChainBlock:
        rows, part = PaddedRows(self.geometry, sample, span), slice(*span)
        sources = [rows.source[:, plane.source] for plane in self.sorted.planes]
        if self.before is not None:
            sources = [_as_matrix(source) for source in sources]
        return ChainBlock(
            rows.kind, sources, out[part], None if residual is None else residual[part]
        )

    def _block(self, worker: int, kind: tuple[int, int, int], joined: bool) -> ChainKernel:
        rows, above, below = kind
        memory = self.workers.carve(worker, self.dtype, *((size,) for size in self.sizes))
        borders, gathers, planes = [], [], []
        for plane, scratch in zip(
            self.sorted.planes, start_of(memory[0], self.sorted.shape(rows)), strict=True
        ):
            padded = plane.rows(scratch)
            inside = slice(above, len(padded) - below)
            outside = plane.borders(scratch), padded[: inside.start], padded[inside.stop :]
            borders += [border for border in outside if border.size]
            gathers.append(self._gather(plane.inside(padded[inside]), memory[1], memory[2]))
            planes.append(padded)
        sums = start_of(memory[1], (rows, self.shape.width * self.shape.channels))
        multiply = self._multiply(planes, sums, memory[2])
        finish = self._finish(sums, memory[0], memory[2], joined)
        return ChainKernel(borders, gathers, multiply, finish)

    def _gather(self, inner: Array, product: Array, spare: Array) -> Callable[[Array], None]:
        """Return a function that fills the columns of one plane."""
        if not inner.size:
            return lambda _: None
        if self.before is None:
            return lambda source: np.copyto(inner, source)
        rows, width, channels = inner.shape
        sums, to = start_of(product, (rows, width * channels)), join_pixels(inner)
        products = {2: sums.reshape(-1, channels), 3: sums.reshape(inner.shape)}
        weight, finish = self.before.weight, self.before.finish_of(sums, spare)

        def expand(source: Array) -> None:
            np.matmul(source, weight, out=products[source.ndim])
            finish()
            np.copyto(to, sums)  # faster than an epilogue that writes rows with gaps

        return expand

    def _multiply(self, planes: list[Array], sums: Array, spare: Array) -> Callable[[], None]:
        """Return a function that sums over the taps, in one pass for each plane."""
        runs = len(sums), self.shape.width // self.pixels, self.pixels * self.shape.channels
        total, part = sums.reshape(runs), start_of(spare, runs)
        (seen, weight), *others = (
            (taps.of(planes[taps.plane], self.geometry, len(sums)), taps.weight)
            for taps in self.taps
        )

        def multiply() -> None:
            np.einsum("ijyxv,ijv->yxv", seen, weight, out=total)
            for more, its_weight in others:
                np.einsum("ijyxv,ijv->yxv", more, its_weight, out=part)
                np.add(total, part, out=total)

        return multiply

    def _finish(
        self, sums: Array, last: Array, spare: Array, joined: bool
    ) -> Callable[[Array, Array | None], None]:
        """Return a function that computes `out` from the depthwise sums."""
        rows, width = len(sums), self.shape.width
        link = self.depth if self.after is None else self.after
        channels = link.op.out.shape.channels
        shape = (rows, width * channels) if joined else (rows, width, channels)
        finish, its_spare = link.finish(width if joined else 1), start_of(spare, shape)
        if self.after is None:
            its_sums = sums.reshape(shape)
            return lambda out, residual: finish(its_sums, its_spare, out, residual)
        pixels, product = sums.reshape(rows * width, -1), start_of(last, (rows * width, channels))
        its_sums = product.reshape(shape)
        weight, finish_depth = self.after.weight, self.depth.finish_of(sums, spare)

        def project(out: Array, residual: Array | None) -> None:
            finish_depth()
            np.matmul(pixels, weight, out=product)
            finish(its_sums, its_spare, out, residual)

        return project


def _as_matrix(source: Array) -> Array:
    """View (y, x, c) as (pixels, c) if pixels are evenly spaced, else return it unchanged."""
    height, width, channels = source.shape
    step_y, step_x, item = source.strides
    if step_y != width * step_x and height > 1:
        return source
    return as_strided(source, (height * width, channels), (step_x, item), writeable=False)
