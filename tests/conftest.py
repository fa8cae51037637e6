"""What many tests share: the devices that backend tests run on, and small models as files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.backends import open_device
from engine.backends.base import Device
from tests.devices import open_or_skip

pytest_plugins = ["tests.dripping_server", "tests.small_models"]

# What a shell starts in the background ignores it, and some tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(
    scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)], ids=str
)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each kind of device."""
    opened = open_or_skip(lambda: open_device(request.param))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cpu() -> Iterator[Device]:
    """The written definition, on one thread."""
    with closing(open_device("cpu:1")) as opened:
        yield opened
