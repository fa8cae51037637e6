"""Calibration on a card."""

from contextlib import closing

import numpy as np
import pytest

from engine.backends import open_device
from engine.calibrate.choose import Measurement
from engine.calibrate.collect import can_measure, count_magnitudes
from engine.passes.quantise import LayerRanges
from tests.calibrate.test_choose import network, rows
from tests.devices import open_or_skip


@pytest.mark.cuda
def test_a_card_finds_the_ranges_and_errors_of_the_cpu():
    plan = network()
    found = []
    card = open_or_skip(lambda: open_device("cuda:0"))
    with closing(open_device("cpu")) as cpu, closing(card):
        for device in (cpu, card):
            assert can_measure(device)
            histograms = count_magnitudes(plan, device, rows())
            ranges = LayerRanges({n: each.limit("max") for n, each in enumerate(histograms)})
            error = Measurement(plan, device, rows()).error(ranges)
            found.append((list(ranges.largest.values()), error))
    (ours, error), (theirs, other) = found
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)
    assert other == pytest.approx(error, rel=0.1)
