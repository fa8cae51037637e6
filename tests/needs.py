"""What a test needs beyond Python; the reason for skipping says what to do when it is missing."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"

# Packages that the extra `dev` does not install.
OTHER_PACKAGES = {
    "cv2": "opencv-python-headless",
    "pytriton": "'.[triton]' (it needs NumPy 1)",
    "torch": "torch",
}


def advice(name: str) -> str:
    """Return the reason for skipping without a package: how to install it."""
    what = OTHER_PACKAGES.get(name.partition(".")[0], "'.[dev]'")
    return f"{name} is not installed. Run: pip install {what}"


def package(name: str) -> Any:
    """Import a package; without it, skip the test, or the whole file at module level."""
    return pytest.importorskip(name, reason=advice(name))


def installed(name: str) -> pytest.MarkDecorator:
    """Mark a test that needs a package which is slow to import."""
    return pytest.mark.skipif(find_spec(name) is None, reason=advice(name))


def program(name: str, install: str | None = None) -> pytest.MarkDecorator:
    """Mark a test that needs a program on PATH."""
    reason = f"{name} is not on PATH. Install it, for example: apt install {install or name}"
    return pytest.mark.skipif(shutil.which(name) is None, reason=reason)


def shared(*names: str) -> pytest.MarkDecorator:
    """Mark a test that needs folders of the reference data next to the clone."""
    missing = [name for name in names if not (SHARED / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=no_shared(*missing))


def no_shared(*names: str) -> str:
    """Return the reason for skipping a test without these folders."""
    folders = ", ".join(f"../shared/{name}" for name in names)
    return f"{folders} is missing. Put the reference data there, see CONTRIBUTING.md"


AS_ROOT = "root may read and write everywhere. Run the tests as another user"
ordinary_user = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason=AS_ROOT)
