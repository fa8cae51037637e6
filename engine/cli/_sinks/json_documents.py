"""--json and --jsonl: results as JSON, written one by one to save memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cli._json_report import JSON_VERSION
from engine.cli._output_files import Existing
from engine.cli._sinks.base import Sink
from engine.cli._sinks.earlier_lines import EarlierLines, Line, key_of
from engine.cli._sinks.text_output import TextOutput
from engine.errors import ImageError
from engine.files.naming import escaped_bytes
from engine.sources.item import Item
from engine.version import __version__
from engine.vision import serialize


class Document(Sink):
    """A document in the engine's own style; `-` is stdout."""

    _SEPARATOR = ",\n  "

    def __init__(self, path: str, *, existing: Existing) -> None:
        self._out = TextOutput(path, existing=existing, incremental=False)
        self.is_stdout = self._out.is_stdout
        self._count = 0

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        self._out.open()
        self._out.write(self._head(about))

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._add(serialize.json_text(_entry(item, outcome)))

    def fail(self, item: Item, error: ImageError) -> None:
        self._add(serialize.json_text(_failure(item, error)))

    def finish(self) -> None:
        self._out.write(self._tail())
        self._out.keep()

    def discard(self) -> None:
        self._out.discard()

    def _head(self, about: dict[str, Any]) -> str:
        about = {"version": JSON_VERSION, "engine": __version__, **about}
        return json.dumps(about, indent=1, allow_nan=False)[: -len("\n}")] + ',\n "images": [\n  '

    def _tail(self) -> str:
        return "\n ]\n}\n"

    def _add(self, entry: str) -> None:
        self._out.write(self._SEPARATOR * bool(self._count) + entry)
        self._count += 1


class DarknetDocument(Document):
    """The file that darknet's -out option writes; it has no place for failures."""

    _SEPARATOR = ", \n"

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._add(serialize.darknet_entry(outcome, self._count + 1))

    def fail(self, item: Item, error: ImageError) -> None:
        pass

    def _head(self, about: dict[str, Any]) -> str:
        return "[\n"

    def _tail(self) -> str:
        return "\n]"


DOCUMENTS: dict[str, type[Document]] = {
    "engine": Document,
    "darknet": DarknetDocument,
}


class JsonLines(Sink):
    """An object per line, written as soon as its picture is done; `-` is stdout."""

    def __init__(self, path: str, *, existing: Existing) -> None:
        self._out = TextOutput(path, existing=existing, incremental=True)
        self.is_stdout = self._out.is_stdout
        self._earlier: EarlierLines | None = None
        if existing == "resume" and not self.is_stdout:
            self._earlier = EarlierLines.read(*("--jsonl", Path(path), _parse_line), starts=_STARTS)

    def lacks(self, item: Item) -> bool | None:
        if self.is_stdout:
            return None
        return self._earlier is None or not self._earlier.has(key_of(item))

    def found(self, item: Item) -> int | None:
        return None if self._earlier is None else self._earlier.objects_in(key_of(item))

    def lock(self) -> None:
        if self._earlier is None:
            self._out.lock()
        else:
            self._earlier.check()

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        if self._earlier is not None:
            self._earlier.remove_failures()
        self._out.open(keep=self._earlier.size if self._earlier else 0)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._out.write(serialize.json_text(_entry(item, outcome)) + "\n")

    def fail(self, item: Item, error: ImageError) -> None:
        self._out.write(serialize.json_text(_failure(item, error)) + "\n", is_result=False)

    def finish(self) -> None:
        self._out.keep()
        if self._earlier is not None:
            self._earlier.warn_of_others()

    def discard(self) -> None:
        self._out.discard()


_STARTS = ('{"schema_version": ', '{"path": ')  # how a result and a failure begin


def _parse_line(line: str) -> Line:
    entry = json.loads(line)
    key = escaped_bytes(str(entry["path"])), entry.get("frame")
    if "error" in entry:
        return Line(key, 0, has_failed=True)
    return Line(key, len(entry["detections"] if "detections" in entry else entry["classes"]))


def _entry(item: Item, outcome: Any) -> dict[str, Any]:
    entry: dict[str, Any] = outcome.to_dict()
    return entry | serialize.frame_entry(item.frame)


def _failure(item: Item, error: ImageError) -> dict[str, Any]:
    return {"path": item.name, "error": str(error)}
