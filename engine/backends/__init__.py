"""Devices by name: each folder here is a kind of device, opened by its function `open`."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, cast

from engine.errors import DeviceError, InputError, suggest, threads_told

if TYPE_CHECKING:
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
    if threads is not None and threads < 1:
        raise InputError(f"threads: expected 1 or more, got {threads}")
    cpu = "cpu" if threads is None else f"cpu:{threads}"
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


def woken(name: str) -> AbstractContextManager[None]:
    """Inside, what open_chosen() will open wakes up beside the caller, where that takes long."""
    kind, _, argument = ("cuda:0" if name == "auto" else name).partition(":")
    if kind != "cuda":
        return nullcontext()
    from engine.backends import cuda

    return cuda.waking(argument)


@contextmanager
def opened_meanwhile(device: str, threads: int | None) -> Iterator[Callable[[], Device]]:
    """Open a device while the caller does something else; close it if that fails."""
    if device.startswith("cpu"):  # is there at once
        machine = open_chosen(device, threads)
        try:
            yield lambda: machine
        except BaseException:
            machine.close()
            raise
        return
    # What both threads will import is imported here: parts of one package, imported by two threads
    # at once, may wait for each other.
    import_module("engine.backends.base")
    from concurrent.futures import ThreadPoolExecutor

    with threads_told("load"), ThreadPoolExecutor(1, thread_name_prefix="engine-open") as opener:
        opening = opener.submit(open_chosen, device, threads)
        try:
            yield opening.result
        except BaseException:
            if opening.exception() is None:
                opening.result().close()
            raise
