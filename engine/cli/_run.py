"""Run pictures through a detector: show each result, report each failure, go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.cli import FAILED
from engine.cli._output import JsonDocument
from engine.errors import ImageError

if TYPE_CHECKING:
    from engine.detector import Detector, Outcome

Show = Callable[[str, "Outcome", float], None]  # file, result, milliseconds


def run_all(
    detector: Detector, inputs: Sequence[str], show: Show, *, document: JsonDocument | None
) -> int:
    """The exit status; `document` gets an entry for each input, in order."""
    failures = 0
    start = time.perf_counter()
    for file, outcome in zip(inputs, detector.stream(inputs, on_error="yield"), strict=True):
        milliseconds = (time.perf_counter() - start) * 1e3
        if isinstance(outcome, ImageError):
            failures += 1
            print(f"Error: {outcome}", file=sys.stderr)
            entry: dict[str, object] = {"path": file, "error": str(outcome)}
        else:
            show(file, outcome, milliseconds)
            entry = outcome.to_dict()
        if document:
            document.add(entry)
        start = time.perf_counter()
    if failures:
        print(f"{failures} of {len(inputs)} pictures could not be read", file=sys.stderr)
    return FAILED if failures else 0
