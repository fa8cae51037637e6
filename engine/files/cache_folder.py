"""The cache folder, for files that can be rebuilt or downloaded again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.errors import InputError


def folder() -> Path:
    """Return ENGINE_CACHE, cache/ in ENGINE_HOME, or the platform's cache folder."""
    if chosen := os.environ.get("ENGINE_CACHE"):
        return Path(chosen)
    if home := os.environ.get("ENGINE_HOME"):
        return Path(home) / "cache"
    return _platform_folder() / "engine"


def _platform_folder() -> Path:
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen)
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    return _home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise InputError("no home folder for the cache: ENGINE_CACHE can name a folder") from None
