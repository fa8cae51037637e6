"""Random networks by the CUDA backend, whose kernels run on the CPU: see tests/property."""

from __future__ import annotations

import pytest

from engine.backends.base import Device
from tests.backends.cuda.host import needs_gxx
from tests.lanes import slow_except
from tests.property.on_cards import measure

COUNT = 120


@needs_gxx
@pytest.mark.parametrize("seed", slow_except(range(19, 37), range(COUNT)))
def test_the_lowering_keeps_the_results_of_random_networks(cpu: Device, seed: int) -> None:
    found = measure(seed, cpu=cpu)
    assert [str(each) for each in found if each.is_too_large] == []
