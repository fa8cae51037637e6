"""Refuse ultralytics' .yaml data sets, saying what to pass instead."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from engine.errors import EngineError
from engine.files.naming import shown

_VAL = "Pass what the .yaml names at val:, such as images/val"
_EXPECTED = {
    "labelled pictures": f"a folder, a list or a COCO .json file. {_VAL}",
    "pictures": f"pictures, folders or lists. {_VAL}",
    "names": "a .names file. Write what the .yaml has at names: into one, a name per line",
    "data": "a .data file of darknet. Pass what the .yaml names at val: as pictures, and its names:"
    " as a .names file, a name per line",
}


def refuse(
    path: str | Path,
    what: Literal["labelled pictures", "pictures", "names", "data"],
    error: type[EngineError],
) -> None:
    """Raise the error if a .yaml is given in place of something else."""
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        raise error(f"{shown(path)}: expected {_EXPECTED[what]}")
