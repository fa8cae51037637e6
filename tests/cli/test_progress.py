"""--progress: a line of counts, on a terminal and in a log file."""

import os
import sys

import pytest

from engine.cli import _progress
from engine.cli._progress import Progress, _duration


@pytest.fixture
def clock(monkeypatch):
    """A clock that every reading advances by three seconds."""
    seconds = iter(range(0, 10_000, 3))
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: float(next(seconds)))


def test_a_log_file_gets_a_line_every_ten_seconds(clock, capsys):
    progress = Progress(is_wanted=True, as_line=True)
    progress.start(30)
    progress.skip()
    for _ in range(8):
        progress.step()
    progress.stop()
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "5 of 30 pictures, 0.3 per second, 1 min 15 s left",
        "9 of 30 pictures, 0.3 per second, 1 min 3 s left",
    ]


def test_a_terminal_has_one_line_that_is_rewritten(clock, monkeypatch):
    pty = pytest.importorskip("pty", reason="this system has no pseudo terminals")
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader, "rb", 0) as reader:
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = Progress(is_wanted=True, as_line=True)
        progress.start(None)
        progress.step()
        progress.print_stderr("Error: x.jpg")
        progress.step()
        progress.stop()
        first, second = "1 picture, 0.3 per second", "2 pictures, 0.3 per second"
        blanks = [" " * len(each) for each in (first, second)]
        told = f"\r{first}\r{blanks[0]}\rError: x.jpg\r\n\r{second}\r{blanks[1]}\r"
        shown = b""
        while len(shown) < len(told):
            shown += reader.read(1000)
    assert shown.decode() == told


def test_nothing_is_shown_unless_wanted(clock, capsys):
    progress = Progress(is_wanted=False, as_line=True)
    progress.start(3)
    progress.step()
    progress.stop()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7322, "2 h 2 min"), (-1, "0 s")],
)
def test_durations(seconds, text):
    assert _duration(seconds) == text
