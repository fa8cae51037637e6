"""A short run of tools/live_streams.py."""

import argparse

import pytest

from tools import live_streams

pytest.importorskip("av")


@pytest.mark.slow
def test_streams_share_a_detector_and_a_killed_one_comes_back():
    options = argparse.Namespace(
        streams=2, seconds=12.0, away=2.0, device="cpu", precision="float32", batch=2
    )
    figures = live_streams.measure(options)
    assert len(figures["rates"]) == len(figures["longest_gaps_s"]) == 2
    assert all(rate > 0 for rate in figures["rates"])
    assert 0 < figures["back_s"] < 8
    assert figures["memory_mib"]
