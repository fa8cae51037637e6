"""Devices by name: each folder here is a kind of device, opened by its function `open`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import cast

from engine.backends.base import Device
from engine.errors import DeviceError, suggest


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
