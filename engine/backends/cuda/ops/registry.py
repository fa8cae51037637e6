"""Which function runs which op, and what it asks for before a program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.arrays import Array
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.target import Target
from engine.plan.ops import Head, Op

Arrays = Mapping[str, Array]  # the constants of one op, by the name of the op's field
Run = Callable[[Gpu, Any], None]
Workspace = Callable[[Target, Any], int]
Prepare = Callable[[Target, Any, Arrays], Arrays]
_Function = TypeVar("_Function", bound=Run)


def _no_workspace(target: Target, op: Op | Head) -> int:
    return 0


def _unchanged(target: Target, op: Op | Head, constants: Arrays) -> Arrays:
    return constants


@dataclass(frozen=True)
class Runner:
    """How one kind of op is run."""

    run: Run
    workspace: Workspace = _no_workspace
    prepare: Prepare = _unchanged


RUNNERS: dict[type[Op], Runner] = {}
DECODERS: dict[type[Head], Runner] = {}


def runs(
    kind: type[Op], *, workspace: Workspace = _no_workspace, prepare: Prepare = _unchanged
) -> Callable[[_Function], _Function]:
    """Register the function that enqueues `kind`.

    `workspace` returns the bytes of scratch memory that an op needs at most. `prepare` returns the
    arrays to upload, by name and of any dtype; without it an op's constants are uploaded unchanged
    under the names of its fields. Both are pure functions.
    """

    def register(function: _Function) -> _Function:
        RUNNERS[kind] = Runner(function, workspace, prepare)
        return function

    return register


def decodes(
    kind: type[Head], *, workspace: Workspace = _no_workspace, prepare: Prepare = _unchanged
) -> Callable[[_Function], _Function]:
    """Register the function that enqueues the decoder of a head; it writes to `gpu.candidates`.

    The hooks are those of `runs`; a head has no constants, but `prepare` can make tables.
    """

    def register(function: _Function) -> _Function:
        DECODERS[kind] = Runner(function, workspace, prepare)
        return function

    return register
