"""Where results go: a folder of pictures in which nothing is overwritten, and a JSON document."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.version import __version__

JSON_VERSION = 1
_PICTURES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


class PictureFolder:
    """Hands out a new file name for each picture; an input is never overwritten."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, inputs: Sequence[str]) -> PictureFolder | None:
        if not arguments.output:
            return None
        return cls(arguments.output, inputs=inputs, overwrite=arguments.overwrite)

    def __init__(self, folder: str, *, inputs: Iterable[str], overwrite: bool) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made a folder: {error.strerror}") from None
        self._overwrite = overwrite
        self._taken = {os.path.realpath(name) for name in inputs}

    def place(self, source: str) -> Path:
        """A path named like `source`, with a number where that name is taken."""
        stem = Path(source).stem
        suffix = Path(source).suffix.lower()
        suffix = suffix if suffix in _PICTURES else ".png"
        path = self._folder / f"{stem}{suffix}"
        number = 1
        while self._is_taken(path):
            number += 1
            path = self._folder / f"{stem}-{number}{suffix}"
        self._taken.add(os.path.realpath(path))
        return path

    def _is_taken(self, path: Path) -> bool:
        return os.path.realpath(path) in self._taken or (path.exists() and not self._overwrite)


class JsonDocument:
    """The results of a run as one document, written at its end; `-` is stdout."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, inputs: Sequence[str]) -> JsonDocument | None:
        if not arguments.json:
            return None
        return cls(arguments.json, inputs=inputs, overwrite=arguments.overwrite)

    def __init__(self, path: str, *, inputs: Sequence[str], overwrite: bool) -> None:
        self.is_stdout = path == "-"
        self._path = Path(path)
        self._images: list[dict[str, Any]] = []
        if self.is_stdout:
            return
        if os.path.realpath(path) in map(os.path.realpath, inputs):
            raise InputError(f"--json {path}: is one of the pictures")
        if self._path.exists() and not overwrite:
            raise InputError(f"--json {path}: exists already. Name another, or add --overwrite")
        if not self._path.parent.is_dir():
            raise InputError(f"--json {path}: there is no folder {str(self._path.parent)!r}")

    def add(self, entry: dict[str, Any]) -> None:
        self._images.append(entry)

    def write(self, **about: object) -> None:
        document = {"version": JSON_VERSION, "engine": __version__, **about, "images": self._images}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        if self.is_stdout:
            sys.stdout.write(text)
        else:
            self._path.write_text(text, encoding="utf-8")
