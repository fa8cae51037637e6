"""The type of options and inputs that name something."""

from __future__ import annotations

import argparse


def filled(text: str) -> str:
    """A shell's variable that is not set leaves an empty name, which must not mean none."""
    if not text:
        raise argparse.ArgumentTypeError("expected a name, got an empty one")
    return text
