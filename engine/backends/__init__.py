"""Devices by name: each folder here is a kind of device, opened by its function `open`."""

from __future__ import annotations

import logging
import pkgutil
from importlib import import_module
from typing import cast

from engine.backends.base import Device
from engine.errors import DeviceError, InputError, suggest

_log = logging.getLogger("engine")


def kinds() -> tuple[str, ...]:
    """The kinds of devices that this installation knows, present or not."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def open_device(name: str) -> Device:
    """Open `kind` or `kind:argument`, as "cpu", "cpu:2" (threads) or "cuda:0" (its number)."""
    kind, _, argument = name.partition(":")
    if kind not in kinds():
        hint = suggest(kind, kinds())
        raise DeviceError(f"device: expected one of {', '.join(kinds())}, got {name!r}.{hint}")
    return cast(Device, import_module(f"{__name__}.{kind}").open(argument))


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
