"""Read boxes with identities from the text files of MOTChallenge.

A line has: frame, identity, left, top, width, height, confidence, and further columns that are
ignored. Columns are separated by commas or spaces. Ground truth with a confidence of 0 is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engine.errors import InputError
from engine.evaluate.mot import Tracks
from engine.evaluate.text_files import read_text
from engine.files.naming import shown

_log = logging.getLogger("engine")

_LIMIT = 1 << 28  # maximum bytes of a file
_COLUMNS = 6
_CONFIDENCE = 6
_LARGEST = 10**15  # below 2**53, up to which floats represent all integers


def read_tracks(path: Path, *, is_truth: bool = False) -> Tracks:
    """Read a file; require unique identities within a frame."""
    rows: list[list[float]] = []
    lines: dict[tuple[float, float], int] = {}
    for number, line in enumerate(read_text(path, limit=_LIMIT).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{shown(path)}:{number}"
        values = _numbers(line, where)
        if is_truth and len(values) > _CONFIDENCE and values[_CONFIDENCE] == 0:
            continue
        key = values[0], values[1]
        if key in lines:
            problem = f"identity {key[1]:g} appears twice in frame {key[0]:g}"
            raise InputError(f"{where}: {problem}, see line {lines[key]}")
        lines[key] = number
        rows.append(values[:_COLUMNS])
    table = np.array(rows, np.float64).reshape(-1, _COLUMNS)
    return Tracks(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])


def _numbers(line: str, where: str) -> list[float]:
    try:
        values = [float(each) for each in line.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{where}: expected numbers, got {line[:80]!r}") from None
    if len(values) < _COLUMNS:
        expected = "frame, identity, left, top, width, height"
        raise InputError(f"{where}: expected {expected}, got {len(values)} numbers")
    if not np.isfinite(values[:_COLUMNS]).all():
        raise InputError(f"{where}: expected finite numbers, got {line[:80]!r}")
    if not all(each.is_integer() and abs(each) <= _LARGEST for each in values[:2]):
        expected = f"integers up to {_LARGEST:.0e} for frame and identity"
        raise InputError(f"{where}: expected {expected}, got {line[:80]!r}")
    return values


def find_pairs(truth: str, found: str) -> Iterator[tuple[str, Path, Path]]:
    """Yield the name, ground truth and results of each sequence; both are files, or both folders.

    The folder of results has a NAME.txt for each sequence, that of the ground truth a NAME.txt or,
    as in MOTChallenge, a NAME/gt/gt.txt.
    """
    truth_path, found_path = Path(truth), Path(found)
    if not found_path.is_dir():
        if truth_path.is_dir():
            raise InputError(f"{shown(truth)}: expected a file, as {shown(found)} is one")
        yield found_path.stem, truth_path, found_path
        return
    if not truth_path.is_dir():
        raise InputError(f"{shown(truth)}: expected a folder, as {shown(found)} is one")
    results = sorted(found_path.glob("*.txt"))
    if not results:
        raise InputError(f"{shown(found)}: folder: has no .txt files")
    for each in results:
        candidates = truth_path / each.stem / "gt" / "gt.txt", truth_path / each.name
        file = next((path for path in candidates if path.is_file()), None)
        if file is None:
            expected = f"{each.name} or {each.stem}/gt/gt.txt"
            raise InputError(f"{shown(truth)}: expected {expected} for {shown(each)}")
        yield each.stem, file, each
    names = {each.parent.parent.name for each in truth_path.glob("*/gt/gt.txt")}
    names |= {each.stem for each in truth_path.glob("*.txt")}
    if missing := sorted(names - {each.stem for each in results}):
        what = "%s: has no results for %d sequences of %s, which are not evaluated, such as %s"
        _log.warning(what, shown(found), len(missing), shown(truth), shown(missing[0]))
