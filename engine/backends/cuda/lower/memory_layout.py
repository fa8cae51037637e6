"""Where everything of a program lies: blocks of device memory laid out before any is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv.tensor_cores import whole_eights
from engine.backends.cuda.lower import side_stream
from engine.backends.cuda.ops.gpu import DECODERS, RUNNERS, Runner, Target
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.errors import InputError
from engine.plan.build import Plan
from engine.plan.ops import Chain, Constant, Conv2d, Head, Op, Tensor

ALIGNMENT = 256  # bytes: what the driver's own allocations have
MOST_VALUES = 2**31 - 2**22  # kernels count in int, by at most so many at once
_COLOURS, _ROOM_FOR_COLOURS = 3, 4
_PIECE = 16  # bytes: what the copy engine moves


@dataclass(frozen=True)
class Slice:
    """Part of a block."""

    offset: int  # bytes
    pitch: int  # values from one pixel to the next


@dataclass(frozen=True)
class Layout:
    """Slices of the activation block."""

    slices: Mapping[Tensor, Slice]
    states: tuple[tuple[int, int], ...]  # (offset, bytes) of what outlives a run
    spaced: tuple[tuple[int, int], ...]  # of what has values between its pixels: read, not written
    size: int


def lay_out(plan: Plan, target: Target) -> Layout:
    """A place for every tensor: in the plan's arena, behind it, or inside another tensor.

    The arena counts values of one size, without room between: floats in a program of halves and
    pictures in colours lie behind it, and what is used out of the order of the ops.
    """
    apart = side_stream.tensors(plan, target) | _written_early(plan)
    detected = _detected(plan)
    arena = plan.arena
    top = 0 if arena is None else _align(arena.size * target.batch * target.value_bytes)
    slices: dict[Tensor, Slice] = {}
    states: list[tuple[int, int]] = []
    spaced: list[tuple[int, int]] = []
    for root in dict.fromkeys(plan.root(tensor) for tensor in plan.tensors):
        pitch = _pitch(plan, root, detected)
        values = target.rows(root) * root.shape.area * pitch
        _check_count(values, target)
        size = values * target.bytes_of(root)
        is_dense = pitch == root.shape.channels and root not in target.floats | apart
        if arena is not None and root in arena.offsets and is_dense:
            offset = arena.offsets[root] * target.batch * target.value_bytes
        else:
            offset, top = top, top + _align(size)
        if pitch != root.shape.channels:
            spaced.append((offset, _align(size)))
        if root.is_state:
            states.append((offset, _align(size)))
        slices[root] = Slice(offset, pitch)
    for op in plan.ops:
        if isinstance(op, Conv2d):  # some algorithms store what a pool behind it reads
            _check_count(target.rows(op.out) * op.grid.size, target)
    for tensor, view in plan.views.items():
        assert tensor.shape.sides[1:] == view.root.shape.sides[1:], tensor
        root_slice = slices[view.root]
        inside = view.channel * target.bytes_of(view.root)
        slices[tensor] = Slice(root_slice.offset + inside, root_slice.pitch)
    return Layout(slices, tuple(states), tuple(spaced), top)


def _written_early(plan: Plan) -> frozenset[Tensor]:
    """What convolutions write while they read what the arena has another op read before."""
    offsets: Mapping[Tensor, int] = {} if plan.arena is None else plan.arena.offsets

    def share_memory(one: Tensor, other: Tensor) -> bool:
        if not {one, other} <= offsets.keys():
            return False
        (start, end), (first, last) = (
            (offsets[each], offsets[each] + each.shape.size * each.steps) for each in (one, other)
        )
        return start < last and first < end

    return frozenset(
        plan.root(op.out)
        for op in plan.ops
        if isinstance(op, ScaledConv2d | Chain)
        and any(share_memory(*map(plan.root, (op.out, each))) for each in op.reads)
    )


def _check_count(values: int, target: Target) -> None:
    if values > MOST_VALUES:
        raise InputError(
            f"batch: {target.batch} makes a tensor of {values} values, "
            f"expected at most {MOST_VALUES}. Try a smaller batch"
        )


def misaligned(plan: Plan, target: Target) -> frozenset[Tensor]:
    """Tensors with pixels that do not begin on 16 bytes; the copy engine cannot read these.

    And those of detection layers in the midst of other tensors, which have no room of their own.
    """
    slices = lay_out(plan, target).slices
    crowded = _detected(plan) & plan.views.keys()
    return crowded | {
        tensor
        for tensor, each in slices.items()
        if each.offset % 16 or each.pitch * target.bytes_of(tensor) % 16
    }


def _detected(plan: Plan) -> frozenset[Tensor]:
    """What convolutions put out that make what a detection layer does, too."""
    return frozenset(op.out for op in plan.ops if isinstance(op, Conv2d) and op.yolo is not None)


def _pitch(plan: Plan, root: Tensor, detected: Collection[Tensor]) -> int:
    """Values from one pixel to the next: those of a picture in colours begin on whole words.

    A first layer reads a pixel at once so; see conv/thin.py. What a detection layer puts out has
    room for whole eights, which are written at once; see conv/hopper.py.
    """
    channels = root.shape.channels
    if root in detected:
        return whole_eights(channels)
    is_picture = root == plan.source and channels == _COLOURS and root.shape.area > 1
    return _ROOM_FOR_COLOURS if is_picture else channels


@dataclass(frozen=True)
class Weights:
    """The contents of the weights block, and where each array of each op begins."""

    arrays: tuple[tuple[int, Array], ...]  # (offset, values)
    offsets: Mapping[tuple[Op | Head, str], int]
    size: int


def prepare(plan: Plan, target: Target, item: Op | Head) -> dict[str, Array]:
    """The arrays of an op or head as the device will have them."""
    constants = {name: plan.constants[each.name] for name, each in _constants(item).items()}
    with np.errstate(over="ignore"):  # weights that no half can hold: overflow.py finds them
        made = runner(item).prepare(target.of(item), item, constants)
    return {name: np.ascontiguousarray(values) for name, values in made.items()}


Prepare = Callable[[Plan, Target, Op | Head], Mapping[str, Array]]


def lay_out_weights(plan: Plan, target: Target, prepare: Prepare = prepare) -> Weights:
    """Prepare the arrays of every op; what several ops share is kept once."""
    readers = Counter(constant.name for op in plan.ops for constant in op.constants)
    arrays: list[tuple[int, Array]] = []
    offsets: dict[tuple[Op | Head, str], int] = {}
    known: dict[bytes, int] = {}
    top = 0

    for item in _items(plan):
        # Not on several threads: glibc keeps what each of them has freed, up to all that it had.
        made = prepare(plan, target, item)
        is_shared = any(readers[constant.name] > 1 for constant in _constants(item).values())
        for name, values in made.items():
            identity = _identity(values) if is_shared else b""
            if identity in known:
                offsets[item, name] = known[identity]
                continue
            if is_shared:
                known[identity] = top
            offsets[item, name] = top
            arrays.append((top, values))
            top += _align(values.nbytes)
    return Weights(tuple(arrays), offsets, top)


def next_weights(plan: Plan, weights: Weights) -> dict[Op, tuple[int, int]]:
    """Where the weights of the next convolution behind each op begin, and their bytes."""
    sizes = {offset: values.nbytes for offset, values in weights.arrays}
    latest = 0, 0
    found: dict[Op, tuple[int, int]] = {}
    for op in reversed(plan.ops):
        found[op] = latest
        offset = weights.offsets.get((op, "weight"))
        if isinstance(op, Conv2d) and offset is not None:
            latest = offset, sizes[offset] // _PIECE * _PIECE
    return found


def workspace_bytes(plan: Plan, target: Target) -> int:
    """The most that any op asks for."""
    needs = [runner(item).workspace(target.of(item), item) for item in _items(plan)]
    return _align(max(needs, default=0))


def runner(item: Op | Head) -> Runner:
    return RUNNERS[type(item)] if isinstance(item, Op) else DECODERS[type(item)]


def _items(plan: Plan) -> tuple[Op | Head, ...]:
    return *plan.ops, *plan.heads


def _constants(item: Op | Head) -> dict[str, Constant]:
    """The constants of an op by the name of its field; of a chain's links behind their number."""
    if isinstance(item, Chain):
        return {
            f"{number}.{name}": value
            for number, link in enumerate(item.links)
            for name, value in _constants(link).items()
        }
    return {name: value for name, value in vars(item).items() if isinstance(value, Constant)}


def _identity(values: Array) -> bytes:
    return sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).digest()


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
