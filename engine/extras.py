"""The distribution's name, and the command that installs an optional dependency group."""

from __future__ import annotations

from pathlib import Path

DISTRIBUTION = "darknet-engine"


def command(extra: str) -> str:
    """Return the pip command that installs `extra` for this copy of the engine.

    For a clone, the command names its folder; clones are recognised by their setup.cfg. Installed
    metadata is not used, because a build leaves an .egg-info in the clone that looks like an
    installation.
    """
    root = Path(__file__).parents[1]
    requirement = str(root) if (root / "setup.cfg").is_file() else DISTRIBUTION
    return f"pip install '{requirement}[{extra}]'"
