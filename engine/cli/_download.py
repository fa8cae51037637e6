"""What a person sees of a download: a line, and a bar on a terminal if tqdm is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from engine.models.download import Progress
    from engine.models.registry import Model


@contextmanager
def progress_of(model: Model) -> Iterator[Progress | None]:
    """Says what is fetched, on stderr; gives what shows the bytes that come."""
    for address in model.addresses[:1]:
        host = urlsplit(address).netloc
        print(f"{model.file}: {model.bytes / 1e6:.1f} MB from {host}", file=sys.stderr)
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:  # an extra; the download is the same without it
        yield None
        return
    with tqdm(total=model.bytes, unit="B", unit_scale=True, leave=False, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
