"""Limit the warnings about one file, so that an untrusted file cannot flood stderr."""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger

MAX_WARNINGS = 10


def warn_about_first(log: Logger, messages: Sequence[str], file: str, what: str) -> None:
    """Log the first warnings about `file`, and then the number of further `what`."""
    for message in messages[:MAX_WARNINGS]:
        log.warning("%s", message)
    if len(messages) > MAX_WARNINGS:
        log.warning("%s: %d more %s", file, len(messages) - MAX_WARNINGS, what)
