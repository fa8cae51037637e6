"""Seed files of the checkout, and of ../shared if it exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from engine.darknet import cfg, graph
from engine.errors import EngineError

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"

_FILTERS = re.compile(
    r"(?m)^(filters\s*=\s*)(\d+)(?=[^[]*\[(?!yolo|Gaussian_yolo|region|detection))"
)
_SIDE = re.compile(r"(?m)^((?:width|height)\s*=\s*)\d+")
_OUTPUT = re.compile(r"(?m)^((?:output|hidden)\s*=\s*)(\d+)")


def files(*patterns: str) -> list[Path]:
    found = [
        path for root in (ROOT, SHARED) for pattern in patterns for path in root.rglob(pattern)
    ]
    return sorted(path for path in found if path.is_file())


@cache
def networks() -> tuple[str, ...]:
    """Return the text of every .cfg, and a smaller version of it that runs fast."""
    texts = dict.fromkeys(cfg.read_text(path) for path in files("*.cfg"))
    return tuple(dict.fromkeys(each for text in texts for each in (text, *_small(text))))


def _small(text: str) -> Iterator[str]:
    small = _SIDE.sub(r"\g<1>64", text)
    small = _FILTERS.sub(lambda found: f"{found[1]}{max(int(found[2]) // 16, 4)}", small)
    small = _OUTPUT.sub(lambda found: f"{found[1]}{max(int(found[2]) // 64, 2)}", small)
    try:
        graph.build(cfg.parse(small))
    except EngineError:
        return
    yield small
