"""A short run of tools/live_streams.py."""

import argparse

import pytest

from tools import live_streams

pytest.importorskip("av")


def test_only_the_killed_stream_may_have_nothing_when_it_is_revived():
    moments = [0.0, 1.0, 2.0, 7.0, 7.5]
    assert live_streams.longest_gap(moments, None) == 5
    assert live_streams.longest_gap(moments, 3.0) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--seconds", "6"], "--away: expected more than 0 and less than half of --seconds 6"),
        (["--away", "-1"], "--away: expected more than 0"),
        (["--streams", "0"], "--streams: expected 1 or more, got 0"),
    ],
)
def test_impossible_times_are_refused(words, reason, capsys):
    with pytest.raises(SystemExit, match="2"):
        live_streams.main(words)
    assert reason in capsys.readouterr().err


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
