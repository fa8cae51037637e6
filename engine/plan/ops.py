"""The ops to which darknet's layers are lowered and which every backend runs.

An op is immutable. It holds shapes, numbers, and references to tensors and constants, but no arrays
or pointers. Shapes are those of one sample, (channels, height, width); a program runs many samples
(rows) at once. In the equations c, y, x run over the output, i, j over a window, s over sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

from engine.concurrency.cached_property import cached_property
from engine.plan.activations import ACTIVATIONS
from engine.plan.shapes import Shape, Window


@dataclass(frozen=True)
class Tensor:
    """An array of activations; `index` distinguishes tensors of equal shape.

    `steps` is its number of rows for each sequence of a batch: the plan's number of time steps, or
    1 within an unrolled recurrence. Rows are step-major: row = step * sequences + sequence.
    `is_state` marks recurrent state, which starts at zero and is kept between runs.
    """

    index: int
    shape: Shape
    steps: int = 1
    is_state: bool = False


@dataclass(frozen=True)
class Constant:
    """The name of an array in `Plan.constants`."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ConcatPart:
    """Channels first .. first + count of `src`, which become channels at .. at + count."""

    src: Tensor
    first: int
    count: int
    at: int


@dataclass(frozen=True)
class Op:
    """A step of a plan, which reads tensors and constants and writes `out`.

    An op caches what passes ask for repeatedly.
    """

    out: Tensor

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(item for item in self._references() if isinstance(item, Tensor))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(item for item in self._references() if isinstance(item, Constant))

    def _references(self) -> Iterator[object]:
        """Yield what the fields other than `out` refer to, among other values."""
        for name, value in values_of(self).items():
            if name == "out":
                continue
            for item in value if isinstance(value, tuple) else (value,):
                yield item.src if isinstance(item, ConcatPart) else item


def values_of(item: Op | Head) -> dict[str, Any]:
    """Return the values of all fields by name; vars() would include what an op caches."""
    kind: Any = type(item)  # Mypy does not take the type of a dataclass for hashable
    return {name: getattr(item, name) for name in _names(kind)}


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


# ---------------------------------------------------------------- linear

# An op that a kernel can apply to the sums of a convolution before it stores them.
TailOp: TypeAlias = "Activate | MaxPool | Add | YoloOutput | Upsample"
_Step = TypeVar("_Step", bound="TailOp")


@dataclass(frozen=True)
class Conv2d(Op):
    """out = tail(sums), where sums[n,y,x] is bias[n] plus the sum over c, i, j of

        weight[n,c,i,j] * src[c, y*stride + i*dilation - padding, x*stride + j*dilation - padding].

    The tail lists what a kernel does with its sums before it stores them. It consists of ordinary
    ops: the first reads `sums`, each other op reads the output of the previous one, and the last
    writes `out`. Without a tail, `out` is the sums. These stages are allowed, in this order:

        Activate                  an activation
        MaxPool                   the maximum over windows
        Add or Activate           add a residual, the second source, or activate once more
        YoloOutput or Upsample    the output of a detection layer, or a larger map

    Cells outside src are zero. Groups divide channels and filters. A 1-D convolution has height 1.
    With `signed` (darknet's xnor) the input is replaced by its sign, +1 where x > 0 and else -1,
    cells outside are -1, and the weights of each filter are plus or minus one number.
    """

    src: Tensor
    weight: Constant  # (filters, channels / groups, height, width)
    bias: Constant | None = None  # (filters,)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    signed: bool = False
    tail: tuple[TailOp, ...] = ()

    def __post_init__(self) -> None:
        stages = iter((Activate, MaxPool, (Add, Activate), (YoloOutput, Upsample)))
        for step in self.tail:
            assert any(isinstance(step, stage) for stage in stages), f"{step}: out of order"
        for before, step in pairwise(self.tail):
            assert step.reads[0] == before.out, f"{step}: does not read {before.out}"
        assert not self.tail or self.tail[-1].out == self.out, f"{self.out}: not written"

    def then(self, step: TailOp) -> Conv2d:
        """Return this convolution with `step`, which reads `out`, at the end of its tail."""
        assert step.reads[0] == self.out, step
        return replace(self, out=step.out, tail=(*self.tail, step))

    def cut(self, count: int) -> Conv2d:
        """Return this convolution with only the first `count` ops of its tail."""
        if count >= len(self.tail):
            return self
        return replace(self, out=self.tail[count].reads[0], tail=self.tail[:count])

    def writing(self, out: Tensor) -> Conv2d:
        """Return this convolution with another `out` of the same height and width."""
        if not self.tail:
            return replace(self, out=out)
        last = self.tail[-1]
        src = last.reads[0]
        shape = src.shape.with_channels(out.shape.channels)
        src = replace(src, shape=shape, steps=out.steps)
        more = {"sources": (src, *last.sources[1:])} if isinstance(last, Add) else {"src": src}
        return self.cut(len(self.tail) - 1).writing(src).then(replace(last, out=out, **more))

    def _references(self) -> Iterator[object]:
        inside = {self.sums, *(step.out for step in self.tail)}
        yield from super()._references()
        for step in self.tail:
            yield from (item for item in step._references() if item not in inside)

    @property
    def sums(self) -> Tensor:
        """The tensor that the tail starts from; `out` if there is no tail."""
        return self.tail[0].reads[0] if self.tail else self.out

    @property
    def grid(self) -> Shape:
        """The shape of the sums."""
        return self.sums.shape

    @property
    def activation(self) -> str:
        """The activation of the sums, or "linear"."""
        first = self.tail[0] if self.tail else None
        return first.activation if isinstance(first, Activate) else "linear"

    @cached_property
    def pool(self) -> Window | None:
        step = self._step(MaxPool)
        return step.window if step else None

    @cached_property
    def residual(self) -> Tensor | None:
        step = self._step(Add)
        return step.sources[1] if step else None

    @property
    def last_activation(self) -> str:
        """The activation of the sums plus the residual, or a second one, or "linear"."""
        later = (step for step in self.tail[1:] if isinstance(step, Activate))
        step = self._step(Add) or next(later, None)
        return step.activation if step else "linear"

    @cached_property
    def yolo(self) -> YoloOutput | None:
        return self._step(YoloOutput)

    @cached_property
    def upsample(self) -> Upsample | None:
        return self._step(Upsample)

    def _step(self, kind: type[_Step]) -> _Step | None:
        return next((step for step in self.tail if isinstance(step, kind)), None)

    @property
    def pools_quads(self) -> bool:
        """Whether the pool halves the map and may be computed before the activation."""
        pool = self._step(MaxPool)
        return pool is not None and pool.halves and ACTIVATIONS[self.activation].rises

    @property
    def is_bare(self) -> bool:
        """Whether nothing but an activation follows the sums."""
        return len(self.tail) <= 1 and all(isinstance(step, Activate) for step in self.tail)

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weight.shape[2], self.weight.shape[3]

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0, 0, 0)

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.weight.shape[1] == 1


@dataclass(frozen=True)
class Chain(Op):
    """Convolutions in sequence, run as one: no other op reads the tensors between them.

    Only the last may have a residual.
    """

    links: tuple[Conv2d, ...]

    @property
    def src(self) -> Tensor:
        return self.links[0].src

    @property
    def residual(self) -> Tensor | None:
        return self.links[-1].residual

    def _references(self) -> Iterator[object]:
        between = {link.out for link in self.links[:-1]}
        for link in self.links:
            yield from (item for item in link._references() if item not in between)


@dataclass(frozen=True)
class Deconv2d(Op):
    """out[n, y*stride+i-padding, x*stride+j-padding] += weight[c,n,i,j] * src[c,y,x]; + bias."""

    src: Tensor
    weight: Constant  # (channels, filters, size, size)
    bias: Constant | None = None  # (filters,)
    stride: int = 1
    padding: int = 0


@dataclass(frozen=True)
class LocalConv2d(Op):
    """A convolution with weights (cells, filters, c*size*size) of its own at every output cell."""

    src: Tensor
    weight: Constant
    bias: Constant  # (filters * cells,)
    size: int = 1
    stride: int = 1
    padding: int = 0


@dataclass(frozen=True)
class MatMul(Op):
    """out[n] = activation(sum over k of weight[n,k] * flat src[k] + bias[n])."""

    src: Tensor
    weight: Constant  # (outputs, inputs)
    bias: Constant | None = None
    activation: str = "linear"


@dataclass(frozen=True)
class Gate(Op):
    """The factors of a squeeze-and-excite block: out = activation(expand @ hidden + expand_bias),

    where hidden = squeeze_activation(squeeze @ mean of src over its pixels + squeeze_bias).
    """

    src: Tensor
    squeeze: Constant  # (hidden, channels, 1, 1)
    squeeze_bias: Constant | None
    squeeze_activation: str
    expand: Constant  # (outputs, hidden, 1, 1)
    expand_bias: Constant | None
    activation: str


# ---------------------------------------------------------------- elementwise


@dataclass(frozen=True)
class Normalise(Op):
    """out[c] = (src[c] - mean[c]) / sqrt(variance[c] + 1e-5) * scale[c] + bias[c]."""

    src: Tensor
    mean: Constant
    variance: Constant
    scale: Constant
    bias: Constant


@dataclass(frozen=True)
class Activate(Op):
    """out = f(src), f a row of plan/activations.py."""

    src: Tensor
    activation: str


@dataclass(frozen=True)
class Add(Op):
    """out = activation(sum over s of weights[s, c] * sources[s]).

    Sources are read as flat arrays: a shorter one is added to the first values only, a longer one
    is truncated. Weights are (sources, channels) or (sources, 1); the default is 1.
    """

    sources: tuple[Tensor, ...]
    weights: Constant | None = None
    activation: str = "linear"


@dataclass(frozen=True)
class Multiply(Op):
    """out = activation(src * factor); factor is (c,h,w), (c,1,1) or (1,h,w)."""

    src: Tensor
    factor: Tensor
    activation: str = "linear"


@dataclass(frozen=True)
class Mix(Op):
    """out = gate * yes + (1 - gate) * no."""

    gate: Tensor
    yes: Tensor
    no: Tensor


@dataclass(frozen=True)
class Clip(Op):
    """out = min(max(src, -limit), limit)."""

    src: Tensor
    limit: float


@dataclass(frozen=True)
class Repair(Op):
    """out[i] = src[i] if finite, else 1 / i (0 for i = 0), over the flat array of all rows."""

    src: Tensor


@dataclass(frozen=True)
class Load(Op):
    """out = constant, in each row."""

    constant: Constant


# ---------------------------------------------------------------- across channels


@dataclass(frozen=True)
class NormaliseChannels(Op):
    """out[c] = f(src[c]) / (sum over channels of f(src) + 1e-4) at each pixel.

    f(x) is max(x, 0) for positive, exp(x) for softmax, exp(x - max over c) for softmax_max.
    """

    src: Tensor
    kind: Literal["positive", "softmax", "softmax_max"]


@dataclass(frozen=True)
class L2Norm(Op):
    """out[c] = src[c] / sqrt(sum over c of src[c]^2) at each pixel."""

    src: Tensor


@dataclass(frozen=True)
class LocalNorm(Op):
    """out[c] = src[c] * norm[c]^-beta, where norm is computed as darknet does:

    norm[0] = kappa + alpha * sum of squares of channels 0 .. size/2-1, without channel size/2;
    norm[k] = norm[k-1] + alpha * (square[k + size/2] - square[k - (size-1)/2 - 1]).
    """

    src: Tensor
    size: int
    alpha: float
    beta: float
    kappa: float


@dataclass(frozen=True)
class Softmax(Op):
    """Softmax of src / temperature over runs of consecutive flat values.

    `runs` are the lengths, which repeat until all values are covered.
    """

    src: Tensor
    runs: tuple[int, ...]
    temperature: float = 1.0


# ---------------------------------------------------------------- pooling


@dataclass(frozen=True)
class MaxPool(Op):
    """out[c,y,x] = max over the window's cells inside src, or -FLT_MAX without any."""

    src: Tensor
    window: Window

    @property
    def halves(self) -> bool:
        """Whether windows are 2 x 2, do not overlap, and lie inside the map."""
        window, src, out = self.window, self.src.shape, self.out.shape
        return (
            window.size == window.stride == (2, 2)
            and window.padding[:2] == (0, 0)
            and 2 * out.height <= src.height
            and 2 * out.width <= src.width
        )


@dataclass(frozen=True)
class MaxPoolDepth(Op):
    """out[g] = max over k = g, g + out channels, g + 2 * out channels ... of src[k]."""

    src: Tensor


@dataclass(frozen=True)
class AveragePool(Op):
    """out[c,y,x] = mean over the window's cells inside src."""

    src: Tensor
    window: Window


# ---------------------------------------------------------------- data movement


@dataclass(frozen=True)
class Concat(Op):
    """Concatenation of channels of several tensors that have one height and width."""

    parts: tuple[ConcatPart, ...]


@dataclass(frozen=True)
class Reshape(Op):
    """The same values in (channel, row, column) order with another shape."""

    src: Tensor


@dataclass(frozen=True)
class Upsample(Op):
    """out[c,y,x] = scale * src[c, y / stride, x / stride]."""

    src: Tensor
    stride: int
    scale: float = 1.0


@dataclass(frozen=True)
class BlockSum(Op):
    """out[c,y,x] = scale * sum of the stride x stride block of src."""

    src: Tensor
    stride: int
    scale: float = 1.0


@dataclass(frozen=True)
class Reorg(Op):
    """Darknet's reorg over a grid (C,H,W), on flat arrays; s = stride, q = C / s^2:

    at = (k,j,i) in the grid; from = (k % q, j*s + k/q/s, i*s + k/q % s) in (q, H*s, W*s);
    out[at] = src[from]; with `reverse` out[from] = src[at].
    """

    src: Tensor
    stride: int
    grid: Shape
    reverse: bool = False


@dataclass(frozen=True)
class Crop(Op):
    """out[c,y,x] = src[c, y+top, x+left] * scale + shift."""

    src: Tensor
    top: int
    left: int
    scale: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class TakeStep(Op):
    """out = the rows of time step `step` of src."""

    src: Tensor
    step: int


@dataclass(frozen=True)
class JoinSteps(Op):
    """out = the rows of all sources; each source is one time step."""

    sources: tuple[Tensor, ...]


@dataclass(frozen=True)
class Convert(Op):
    """out = src, where one of them or both are int8: see Plan.scales."""

    src: Tensor


@dataclass(frozen=True)
class Store(Op):
    """Copy src to the state `out`, for the next time step or the next run."""

    src: Tensor


# ---------------------------------------------------------------- detection heads


@dataclass(frozen=True)
class YoloOutput(Op):
    """The output of [yolo]: for each anchor a box (4 values, 8 with sigmas), objectness, classes.

    Unless `raw`, the logistic function is applied to all values except w and h. Then x and y become
    v * scale_x_y - (scale_x_y - 1) / 2.
    """

    src: Tensor
    anchors: int
    classes: int
    box: int = 4
    scale_x_y: float = 1.0
    raw: bool = False

    @property
    def entries(self) -> int:
        """The values of an anchor."""
        return self.box + 1 + self.classes


@dataclass(frozen=True)
class RegionOutput(Op):
    """The output of [region]: src transposed to [cell][anchor][box, objectness, classes].

    The logistic function is applied to objectness unless `background`, and a softmax to `runs` of
    classes if there are any.
    """

    src: Tensor
    anchors: int
    classes: int
    coords: int = 4
    background: bool = False
    runs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Head:
    """The decoder of a detection layer: rows (x, y, w, h, objectness, class scores...).

    x, y is the centre; all four are relative to the network's input. Scores are those that darknet
    compares with the threshold, and zero where they do not exceed it. Rows are in darknet's order,
    by cell and then anchor; rows whose objectness does not exceed the threshold are omitted. Scores
    and objectness that are NaN count as above every threshold, so that they are noticed.
    """

    src: Tensor
    classes: int


@dataclass(frozen=True)
class YoloHead(Head):
    anchors: tuple[tuple[float, float], ...]  # in pixels of the network's input, already masked
    network: tuple[int, int]  # width, height
    new_coords: bool = False
    sigmas: bool = False  # [Gaussian_yolo]
    point: Literal["center", "left_top", "right_bottom"] = "center"


@dataclass(frozen=True)
class RegionHead(Head):
    anchors: tuple[tuple[float, float], ...]  # in cells
    grid: tuple[int, int]  # width, height
    coords: int = 4
    classfix: int = 0
    tree_parents: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GridHead(Head):
    """YOLOv1's [detection]: flat [cells * classes][cells * boxes][cells * boxes * 4]."""

    side: int
    boxes: int
    square_root: bool = False
