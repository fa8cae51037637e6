from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import precision_policy
from tests.backends.cuda.cards import CARDS, open_card
from tests.backends.cuda.host_device import HostDevice, on_tape


@pytest.fixture
def host() -> Iterator[HostDevice]:
    with on_tape(HostDevice()) as device:
        yield device


@pytest.fixture(params=CARDS)
def card(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    with open_card(request.param) as device:
        yield device


@pytest.fixture(autouse=True)
def _networks_stand_for_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests are small, and would run in floats as a whole."""
    monkeypatch.setattr(precision_policy, "_SMALL", 0)
