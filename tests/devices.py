"""Devices that a machine may lack."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from engine.errors import DeviceError

Opened = TypeVar("Opened")


def open_or_skip(open_device: Callable[[], Opened]) -> Opened:
    """Open a device, or skip the test; with ENGINE_REQUIRE_CUDA=1 a missing device is an error."""
    try:
        return open_device()
    except DeviceError as error:
        if os.environ.get("ENGINE_REQUIRE_CUDA") == "1":
            raise
        pytest.skip(str(error))
