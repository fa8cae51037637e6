"""A progress bar on stderr, if that is a terminal and tqdm is installed."""

from __future__ import annotations

import sys
from typing import Any

from engine.cli._stderr import print_stderr


class Progress:
    """Counts pictures; prints lines in such a way that they do not disturb the bar."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._bar: Any = None

    def start(self, total: int | None) -> None:
        if not self._is_wanted:
            return
        try:
            from tqdm import tqdm
        except ImportError:  # tqdm is optional
            return
        self._bar = tqdm(total=total, unit=" pictures", file=sys.stderr, leave=False)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def print(self, text: str) -> None:
        if self._bar is None:
            print(text)
        else:
            self._bar.write(text, file=sys.stdout)

    def print_stderr(self, text: str) -> None:
        if self._bar is None:
            print_stderr(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
