"""What many tests share: the devices that backend tests run on, and small models as files."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engine.backends import open_device
from engine.backends.base import Device
from engine.errors import DeviceError

pytest_plugins = ["tests.small_models"]


@pytest.fixture(
    scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)], ids=str
)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Each kind of device; ENGINE_REQUIRE_CUDA=1 says that the GPU has to be there."""
    try:
        opened = open_device(request.param)
    except DeviceError as error:
        if os.environ.get("ENGINE_REQUIRE_CUDA") == "1":
            raise
        pytest.skip(str(error))
    yield opened
    opened.close()
