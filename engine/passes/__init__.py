"""Passes: functions Plan -> Plan that make a naive plan fast, in the order in which they run.

A pass keeps the tensors of `plan.outputs` and those that heads read. Other tensors may disappear,
even if `plan.layers` still names them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.passes.chain_convolutions import chain_convolutions
from engine.passes.chain_pools import chain_pools
from engine.passes.drop_unread import drop_unread
from engine.passes.elide_copies import elide_copies
from engine.passes.fold_batchnorm import fold_batchnorm
from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_gate import fuse_gate
from engine.passes.fuse_pool import fuse_pool
from engine.passes.fuse_residual import fuse_residual
from engine.passes.fuse_upsample import fuse_upsample
from engine.passes.fuse_yolo import fuse_yolo
from engine.passes.merge_siblings import merge_siblings
from engine.passes.place_tensors import place_tensors
from engine.passes.pool_before_concat import pool_before_concat
from engine.passes.split_shortcut import split_shortcut
from engine.plan.build import Plan

Pass = Callable[[Plan], Plan]

PASSES: dict[str, Pass] = {
    each.__name__: each
    for each in (
        drop_unread,
        fold_batchnorm,
        fuse_activation,
        fuse_gate,
        pool_before_concat,
        fuse_pool,
        split_shortcut,
        fuse_residual,
        chain_convolutions,
        chain_pools,
        merge_siblings,
        fuse_yolo,
        fuse_upsample,
        elide_copies,
        place_tensors,
    )
}

# The passes that run before those of a GPU, and before quantise on any device.
FUSING = (
    "fold_batchnorm",
    "fuse_activation",
    "fuse_gate",
    "pool_before_concat",
    "fuse_pool",
    "split_shortcut",
    "fuse_residual",
    "chain_pools",
    "merge_siblings",
    "fuse_yolo",
    "fuse_upsample",
    "elide_copies",
    "drop_unread",
)


def optimise(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan after the passes with these names, which run in the order of PASSES."""
    assert set(names) <= set(PASSES), set(names) - set(PASSES)
    assert plan.arena is None, "the plan is already optimised"
    assert not plan.views, "the plan is already optimised"
    for name, run in PASSES.items():
        if name in names:
            plan = run(plan)
    return plan
