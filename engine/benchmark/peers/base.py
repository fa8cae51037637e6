"""Helpers that the peers share."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from engine.arrays import Array
from engine.backends.cpu.workers import thread_count
from engine.benchmark.workload import Workload
from engine.errors import EngineError
from engine.export import onnx
from engine.passes import optimise

RunPeer: TypeAlias = Callable[[Array], object]


class PeerUnavailable(Exception):  # noqa: N818 - not an error: the peer is skipped
    """The program is not installed, or cannot run this network on this device."""


def import_package(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise PeerUnavailable(f"not installed. Run: pip install {package}") from None


def onnx_model(workload: Workload, batch: int) -> bytes:
    try:
        plan = optimise(workload.plan, onnx.PASSES)
        return onnx.serialize(plan, workload.graph.titles, batch=batch)
    except EngineError as error:
        raise PeerUnavailable(str(error)) from None


def require_precision(workload: Workload, *known: str) -> None:
    if workload.precision not in known:
        raise PeerUnavailable(f"not compared at {workload.precision}")


def is_cuda(workload: Workload) -> bool:
    return workload.device.name.startswith("cuda")


def threads_of(workload: Workload) -> int:
    """Return the number of threads of the engine's CPU backend."""
    return getattr(workload.device, "threads", None) or thread_count()
