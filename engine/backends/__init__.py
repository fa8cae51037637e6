"""Devices by name: each folder here is a kind of device, opened by its function `open`."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from engine.arguments import whole
from engine.errors import DeviceError, suggest

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.backends.base import Device

_log = logging.getLogger("engine")


def kinds() -> tuple[str, ...]:
    """The kinds of devices that this installation knows, present or not."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def open_device(name: str) -> Device:
    """Open `kind` or `kind:argument`, as "cpu", "cpu:2" (threads) or "cuda:0" (its number)."""
    kind, _, argument = name.partition(":")
    if kind not in kinds():
        hint = suggest("cuda" if kind == "gpu" else kind, kinds())
        raise DeviceError(f"device: expected one of {', '.join(kinds())}, got {name!r}.{hint}")
    return cast("Device", import_module(f"{__name__}.{kind}").open(argument))


def open_chosen(name: str, threads: int | None = None) -> Device:
    """As open_device; "auto" is a usable GPU, else the CPU, which has `threads`."""
    cpu = "cpu" if threads is None else f"cpu:{whole('threads', threads)}"
    if name == "cpu":
        return open_device(cpu)
    if name != "auto":
        return open_device(name)
    try:
        found = open_device("cuda:0")
    except DeviceError as reason:
        _log.info("device: cpu (%s)", reason)
        return open_device(cpu)
    _log.info("device: %s", found.name)
    return found


def warm_up(name: str) -> AbstractContextManager[None]:
    """Inside, what open_chosen() will open wakes up beside the caller, where that takes long."""
    kind, _, argument = ("cuda:0" if name == "auto" else name).partition(":")
    if kind != "cuda":
        return nullcontext()
    from engine.backends import cuda

    return cuda.warm_up(argument)


class Opening(NamedTuple):
    """A device on its way."""

    result: Callable[[], Device]  # waits for it
    passes: Callable[[], Sequence[str]]  # what it probably runs; waits for nothing


@contextmanager
def open_in_background(device: str, threads: int | None) -> Iterator[Opening]:
    """Open a device while the caller does something else; close it if that fails."""
    if device.startswith("cpu"):  # is there at once
        machine = open_chosen(device, threads)
        try:
            yield Opening(lambda: machine, lambda: machine.passes)
        except BaseException:
            machine.close()
            raise
        return
    # What both threads will import is imported here: parts of one package, imported by two threads
    # at once, may wait for each other.
    import_module("engine.backends.base")
    from engine.concurrency.thread_pool import ThreadPool

    with closing(ThreadPool(1, "load")) as opener:
        opening = opener.submit(open_chosen, device, threads)
        try:
            yield Opening(opening.result, lambda: _probable_passes(opening))
        except BaseException:
            if opening.exception() is None:
                opening.result().close()
            raise


def _probable_passes(opening: Future[Device]) -> Sequence[str]:
    if opening.done() and opening.exception() is None:
        return opening.result().passes
    from engine.backends.cuda import PASSES  # what else takes long to open

    return PASSES
