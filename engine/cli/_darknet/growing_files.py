"""Many text files that grow together without keeping all of them open."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from engine.cli._output_files import ReservedPaths
from engine.files.atomic import NewFile, make_folder, unwritable

_MAX_PENDING = 100_000  # lines in memory


class GrowingFiles:
    """Files that appear when the `with` block ends; existing ones are replaced, as in darknet."""

    def __init__(
        self,
        paths: Collection[Path],
        begin: str,
        separator: str,
        end: str,
        inputs: Iterable[str | Path | None],
    ) -> None:
        self._begin, self._separator, self._end = begin, separator, end
        reserved = ReservedPaths(inputs)
        self._pending: dict[Path, list[str]] = {}
        self._files: dict[Path, NewFile] = {}
        self._has_lines: set[Path] = set()
        self._count = 0
        for path in paths:
            reserved.reserve("valid", str(path))
            make_folder(path.parent)
        for path in sorted(paths):
            self._files[path] = NewFile(path, overwrite=True)

    def add(self, path: Path, line: str) -> None:
        before = self._separator if path in self._has_lines else self._begin
        self._has_lines.add(path)
        self._pending.setdefault(path, []).append(before + line)
        self._count += 1
        if self._count >= _MAX_PENDING:
            self._flush()

    def _flush(self) -> None:
        for path, texts in self._pending.items():
            try:
                with self._files[path].part.open("a", encoding="utf-8", newline="") as file:
                    file.writelines(texts)
            except OSError as error:
                raise unwritable(path, error) from None
        self._pending.clear()
        self._count = 0

    def __enter__(self) -> GrowingFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._complete()
        finally:
            for file in self._files.values():
                file.discard()

    def _complete(self) -> None:
        for path in self._files:
            begin = "" if path in self._has_lines else self._begin
            self._pending.setdefault(path, []).append(begin + self._end)
        self._flush()
        for path in list(self._files):
            self._files.pop(path).keep()
