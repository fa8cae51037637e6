"""A report as one JSON document, written at the end of a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from engine.cli import _targets
from engine.version import __version__
from engine.vision.new_file import write_new

JSON_VERSION = 1


class JsonDocument:
    """`-` is stdout."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, inputs: Sequence[str]) -> JsonDocument | None:
        if not arguments.json:
            return None
        return cls(arguments.json, inputs=inputs, overwrite=arguments.overwrite)

    def __init__(self, path: str, *, inputs: Sequence[str], overwrite: bool) -> None:
        self.is_stdout = path == "-"
        self._path = path
        self._overwrite = overwrite
        self._images: list[dict[str, Any]] = []
        if not self.is_stdout:
            _targets.check_file("--json", path, inputs, overwrite=overwrite)

    def add(self, entry: dict[str, Any]) -> None:
        self._images.append(entry)

    def write(self, **about: object) -> None:
        document = {"version": JSON_VERSION, "engine": __version__, **about, "images": self._images}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        if self.is_stdout:
            sys.stdout.write(text)
        else:
            content = text.encode()
            write_new(self._path, content, overwrite=self._overwrite, hint=_targets.HINT)
