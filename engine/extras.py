"""Packages that only parts of the engine need, and the command that brings them."""

from __future__ import annotations

from pathlib import Path


def command(extra: str) -> str:
    """For an engine that is installed, and for one that runs where it was cloned."""
    from importlib import metadata

    try:
        metadata.version("engine")
    except metadata.PackageNotFoundError:
        place = str(Path(__file__).parents[1])
    else:
        place = "engine"
    return f"pip install '{place}[{extra}]'"
