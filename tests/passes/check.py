"""check_plan: the invariants of every plan, before and after passes."""

from itertools import combinations

import numpy as np

from engine.plan.build import Plan, View
from engine.plan.ops import Concat, Conv2d, Op, Store, Tensor


def check_plan(plan: Plan) -> None:
    _check_constants(plan)
    _check_views(plan)
    _check_order(plan)
    for op in plan.ops:
        if isinstance(op, Conv2d):
            _check_conv(op)
    if plan.arena is not None:
        _check_arena(plan)


def _check_constants(plan: Plan) -> None:
    read = {constant.name: constant.shape for op in plan.ops for constant in op.constants}
    assert read == {name: values.shape for name, values in plan.constants.items()}
    assert all(values.dtype == np.float32 for values in plan.constants.values())


def _check_views(plan: Plan) -> None:
    for tensor, view in plan.views.items():
        assert view.root not in plan.views, f"{tensor}: a view of a view"
        assert tensor.steps == view.root.steps
        assert tensor.shape.sides[1:] == view.root.shape.sides[1:]
        assert 0 <= view.channel <= view.root.shape.channels - tensor.shape.channels
        assert not tensor.is_state
        assert not view.root.is_state
        assert plan.source not in (tensor, view.root)


def _place(plan: Plan, tensor: Tensor) -> tuple[Tensor, slice]:
    view = plan.views.get(tensor, View(tensor, 0))
    return view.root, slice(view.channel, view.channel + tensor.shape.channels)


def _check_order(plan: Plan) -> None:
    """Every channel is written once, and before it is read; only Store writes states."""
    written: dict[Tensor, np.ndarray] = {}

    def at(tensor: Tensor) -> np.ndarray:
        root, channels = _place(plan, tensor)
        return written.setdefault(root, np.full(root.shape.channels, root.is_state))[channels]

    at(plan.source)[:] = True
    for op in plan.ops:
        assert op.out.is_state == isinstance(op, Store), f"{op} writes a state"
        for tensor in op.reads:
            assert at(tensor).all(), f"{op} reads {tensor} before it is written"
        for channels in _written_channels(op):
            assert op.out.is_state or not at(op.out)[channels].any(), f"{op} overwrites"
            at(op.out)[channels] = True
    for tensor in plan.kept:
        assert at(tensor).all(), f"{tensor} is kept and never written"


def _written_channels(op: Op) -> list[slice]:
    if isinstance(op, Concat):
        return [slice(part.at, part.at + part.count) for part in op.parts]
    return [slice(None)]


def _check_conv(op: Conv2d) -> None:
    channels, height, width = op.grid.sides
    if op.pool is not None:
        assert op.pool.size == op.pool.stride == (2, 2)
        assert op.pool.padding == (0, 0, 0, 0)
        height, width = height // 2, width // 2
    if op.upsample is not None:
        height, width = height * op.upsample.stride, width * op.upsample.stride
    assert op.out.shape.sides == (channels, height, width)
    if op.residual is not None:
        assert (op.residual.shape, op.residual.steps) == (op.out.shape, op.out.steps)


def _check_arena(plan: Plan) -> None:
    assert plan.arena is not None
    offsets = plan.arena.offsets
    lives: dict[Tensor, list[int]] = {plan.source: [-1]}
    for now, op in enumerate(plan.ops):
        for tensor in (*op.reads, op.out):
            lives.setdefault(_place(plan, tensor)[0], []).append(now)
    for tensor in plan.kept:
        lives.setdefault(_place(plan, tensor)[0], []).append(len(plan.ops))
    roots = [tensor for tensor in lives if not tensor.is_state]
    assert set(offsets) == set(roots)
    for tensor in roots:
        assert offsets[tensor] % 16 == 0
        assert 0 <= offsets[tensor] <= plan.arena.size - tensor.shape.size * tensor.steps
    for one, two in combinations(roots, 2):
        if min(lives[one]) <= max(lives[two]) and min(lives[two]) <= max(lives[one]):
            first, second = sorted((one, two), key=offsets.__getitem__)
            end = offsets[first] + first.shape.size * first.steps
            assert end <= offsets[second], f"{first} and {second} are alive in one place"
