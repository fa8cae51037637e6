"""What the files of this folder share: why a peer takes no part, and what it is to run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from engine.arrays import Array
from engine.backends.cpu.workers import thread_count
from engine.benchmark.subject import Subject
from engine.errors import EngineError
from engine.export import onnx
from engine.passes import optimise

Run: TypeAlias = Callable[[Array], object]


class Missing(Exception):  # noqa: N818  nothing went wrong
    """A program that is not installed, or cannot run this network on this device."""


def imported(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise Missing(f"not installed. Run: pip install {package}") from None


def onnx_model(subject: Subject, batch: int) -> bytes:
    try:
        plan = optimise(subject.plan, onnx.PASSES)
        return onnx.serialize(plan, subject.graph.titles, batch=batch)
    except EngineError as error:
        raise Missing(str(error)) from None


def refuse_other_precisions(subject: Subject, *known: str) -> None:
    if subject.precision not in known:
        raise Missing(f"not compared at {subject.precision}")


def is_cuda(subject: Subject) -> bool:
    return subject.device.name.startswith("cuda")


def threads_of(subject: Subject) -> int:
    """As many as our own CPU backend has."""
    return getattr(subject.device, "threads", None) or thread_count()
