"""A JSON document that is written in one go at the end of a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.cli import _model, _output_files
from engine.errors import InputError
from engine.files.atomic import is_stdout, write_new
from engine.version import __version__

JSON_VERSION = 1


def refuse_others(
    option: str, arguments: argparse.Namespace, defaults: Mapping[str, object]
) -> None:
    """Refuse options that `option` makes useless, if they differ from `defaults`."""
    for name, default in defaults.items():
        if getattr(arguments, name) != default:
            other = f"--{name.replace('_', '-')}"
            raise InputError(f"{other}: not with {option}, whose output is --json")


class JsonReport:
    """A report with an entry for each picture, for a file or (`-`) stdout."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, inputs: Iterable[str | None]) -> JsonReport | None:
        if not arguments.json:
            return None
        document = cls(arguments.json, overwrite=arguments.overwrite)
        document.check([*inputs, *_model.files(arguments)])
        return document

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self.is_stdout = is_stdout(path)
        self._path = path
        self._overwrite = overwrite
        self._images: list[dict[str, Any]] = []

    def check(self, inputs: Iterable[str | Path | None]) -> None:
        """Refuse to replace one of the inputs or, without --overwrite, any file."""
        if self._path != "-":
            reserved = _output_files.ReservedPaths(inputs)
            _output_files.check_output("--json", self._path, reserved, overwrite=self._overwrite)

    def add(self, entry: dict[str, Any]) -> None:
        self._images.append(entry)

    def write(self, **about: object) -> None:
        self.write_report(**about, images=self._images)

    def write_report(self, **about: object) -> None:
        """Write a document without entries for pictures."""
        document = {"version": JSON_VERSION, "engine": __version__, **about}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        if self.is_stdout:
            sys.stdout.write(text)
        else:
            content = text.encode()
            write_new(self._path, content, overwrite=self._overwrite, hint=_output_files.HINT)
