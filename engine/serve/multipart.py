"""The picture in a form, multipart/form-data: its one file."""

from __future__ import annotations

import logging

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from engine.serve.refusal import RefusedError

KIND = "multipart/form-data"

# It warns of what is wrong with a form, which is told to whoever sent that.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())

_MOST_PARTS = 16
_LONGEST_HEADER = 1000
_HINT = " With curl: -F image=@dog.jpg"


def file_in(content: bytes, content_type: str) -> tuple[bytes, str]:
    """The content of the only file in a form, and its name."""
    _, options = parse_options_header(content_type[:_LONGEST_HEADER])
    if not options.get(b"boundary"):
        raise RefusedError(400, "multipart: expected a boundary in Content-Type, got none")
    try:
        found = _Files()
        MultipartParser(
            options[b"boundary"],
            {
                "on_part_begin": found.begin_part,
                "on_header_field": found.add_name,
                "on_header_value": found.add_value,
                "on_header_end": found.end_header,
                "on_headers_finished": found.end_headers,
                "on_part_data": found.add_content,
                "on_end": found.end,
            },
        ).write(content)
    except FormParserError as error:
        raise RefusedError(400, f"multipart: cannot be read: {error}") from error
    if not found.is_complete:
        raise RefusedError(400, "multipart: breaks off before its last boundary")
    if len(found.files) != 1:
        count = len(found.files) or "none"
        raise RefusedError(400, f"multipart: expected one file, got {count}.{_HINT}")
    ((name, pieces),) = found.files
    return b"".join(pieces), name


class _Files:
    """What the parser finds; parts without a file name are no files."""

    def __init__(self) -> None:
        self.files: list[tuple[str, list[bytes]]] = []
        self.is_complete = False
        self._parts = 0
        self._is_file = False
        self._name = b""
        self._value = b""
        self._disposition = b""

    def begin_part(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > _MOST_PARTS:
            raise RefusedError(400, f"multipart: expected at most {_MOST_PARTS} parts, got more")

    def add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def end_headers(self) -> None:
        _, options = parse_options_header(self._disposition.decode("latin-1"))
        self._is_file = b"filename" in options
        if self._is_file:
            self.files.append((options[b"filename"].decode("utf-8", "replace"), []))

    def add_content(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.files[-1][1].append(data[start:end])

    def end(self) -> None:
        self.is_complete = True
