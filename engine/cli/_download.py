"""Report a download with a line and, on a terminal with tqdm installed, a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.cli._stderr import print_stderr

if TYPE_CHECKING:
    from engine.models.download import Progress
    from engine.models.registry import Model


@contextmanager
def progress_of(model: Model) -> Iterator[Progress]:
    """Yield a callback for the bytes received; nothing is shown before the first call."""
    bar: Any = None

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            print_stderr(f"{model.file}: downloading {total / 1e6:.1f} MB")
            bar = _bar(total) or False
        if bar:
            bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar:
            bar.close()


def _bar(total: int) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:  # tqdm is optional
        return None
    return tqdm(total=total, unit="B", unit_scale=True, leave=False, file=sys.stderr)
