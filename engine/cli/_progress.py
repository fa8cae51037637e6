"""The progress of a run on stderr: a line for --progress, or tqdm's bar next to the table."""

from __future__ import annotations

import sys
import time
from threading import Lock
from typing import Any

from engine.cli._stderr import print_stderr
from engine.files.naming import without_logins

_TERMINAL_SECONDS = 0.2  # between two updates on a terminal
_LOG_SECONDS = 10.0  # between two lines of a log file


class Progress:
    """Counts pictures, and prints other lines without disturbing the display.

    Without `as_line`, a bar is shown if stderr is a terminal and tqdm is installed. With it, there
    is always a line of counts: updated in place on a terminal, otherwise repeated at intervals.
    """

    def __init__(self, *, is_wanted: bool, as_line: bool = False) -> None:
        self._as_line = as_line
        self._is_terminal = sys.stderr.isatty()
        self._is_wanted = is_wanted and (self._is_terminal or as_line)
        self._bar: Any = None
        self._line: _Line | None = None
        self._lock = Lock()  # skip() is called by the thread that finds pictures

    def start(self, total: int | None) -> None:
        if not self._is_wanted:
            return
        if self._as_line:
            self._line = _Line(total, is_terminal=self._is_terminal)
            return
        try:
            from tqdm import tqdm
        except ImportError:  # tqdm is optional
            return
        self._bar = tqdm(total=total, unit=" pictures", file=sys.stderr, leave=False)

    def step(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.update()
            if self._line is not None:
                self._line.step()

    def skip(self) -> None:
        """Count a picture that an earlier run completed."""
        with self._lock:
            if self._bar is not None and self._bar.total is not None:
                self._bar.total -= 1
            if self._line is not None:
                self._line.earlier += 1

    def print(self, text: str) -> None:
        if self._bar is None:
            print(text)
        else:
            self._bar.write(text, file=sys.stdout)

    def print_stderr(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(without_logins(text), file=sys.stderr)
            return
        if self._line is not None:
            self._line.clear()
        print_stderr(text)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._line is not None:
            self._line.clear()
            self._line = None


class StatusLine:
    """One line of a terminal about what a command does; the next line replaces it."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = 0  # characters currently on the line

    def show(self, text: str) -> None:
        if self._is_terminal:
            print_stderr(f"\r{text.ljust(self._shown)}", end="")
            self._shown = len(text)

    def clear(self) -> None:
        if self._shown:
            print_stderr(f"\r{' ' * self._shown}\r", end="")
            self._shown = 0


class _Line:
    """A line such as: 412 of 1000 pictures, 35.2 per second, 17 s left."""

    def __init__(self, total: int | None, *, is_terminal: bool) -> None:
        self.earlier = 0
        self._total = total
        self._count = 0
        self._on_terminal = StatusLine() if is_terminal else None
        self._start = self._last = time.perf_counter()

    def step(self) -> None:
        self._count += 1
        now = time.perf_counter()
        if now - self._last < (_TERMINAL_SECONDS if self._on_terminal else _LOG_SECONDS):
            return
        self._last = now
        text = self._text(now - self._start)
        if self._on_terminal:
            self._on_terminal.show(text)
        else:
            print_stderr(text)

    def clear(self) -> None:
        if self._on_terminal:
            self._on_terminal.clear()

    def _text(self, seconds: float) -> str:
        done = self._count + self.earlier
        of_total = "" if self._total is None else f" of {self._total}"
        rate = self._count / seconds
        pictures = "picture" if (self._total or done) == 1 else "pictures"
        text = f"{done}{of_total} {pictures}, {rate:.1f} per second"
        if self._total is not None:
            text += f", {_duration((self._total - done) / rate)} left"
        return text


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
