"""Progress on a terminal's stderr, with tqdm if it is installed; nothing anywhere else."""

from __future__ import annotations

import sys
from typing import Any

from engine.cli._stderr import tell


class Progress:
    """Counts pictures; lines are printed through it, so that they do not run into the bar."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._bar: Any = None

    def start(self, total: int | None) -> None:
        if not self._is_wanted:
            return
        try:
            from tqdm import tqdm
        except ImportError:  # an extra; the run is the same without it
            return
        self._bar = tqdm(total=total, unit=" pictures", file=sys.stderr, leave=False)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def say(self, text: str) -> None:
        if self._bar is None:
            print(text)
        else:
            self._bar.write(text, file=sys.stdout)

    def complain(self, text: str) -> None:
        if self._bar is None:
            tell(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
