"""Cards to test on: the kernels on the CPU, and a real one where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from engine.backends.cuda.conv import tensor_cores
from engine.backends.cuda.device import CudaDevice
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.devices import open_or_skip

CARDS = [pytest.param("host", marks=needs_gxx), pytest.param("cuda", marks=pytest.mark.cuda)]


def open_card(name: str) -> AbstractContextManager[CudaDevice]:
    """Open one of CARDS, and close it at the end."""
    if name == "host":
        return on_tape(HostDevice())
    return closing(open_or_skip(lambda: CudaDevice(0)))


@contextmanager
def open_hopper() -> Iterator[CudaDevice]:
    """Skip the test unless the first card is one."""
    with closing(open_or_skip(lambda: CudaDevice(0))) as device:
        if device.card.capability != tensor_cores.HOPPER:
            pytest.skip(f"{device.card.model} is no Hopper card")
        yield device
