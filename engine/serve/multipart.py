"""Parsing of multipart/form-data: the files and the short fields of a form."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from urllib.parse import unquote

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from engine.files.naming import shown
from engine.serve.rejection import RejectedError
from engine.serve.server_limits import check_count

MEDIA_TYPE = "multipart/form-data"

# The parser logs a warning for each malformed form; the client already receives the reason.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())

_MAX_FIELDS = 256
_AFTER_BOUNDARY = re.compile(rb"[ \t]*(\r\n|\n|--)")
_MOST_MENTIONS = 100  # maximum occurrences of the boundary before the first part
_MAX_HEADER_LENGTH = 1000
_MAX_FIELD_LENGTH = 10_000
_ESCAPES = {"%0A": "\n", "%0D": "\r", "%22": '"'}  # WHATWG: the only ones in a form's names
_EXTENDED_NAME = re.compile(r"filename\*\s*=\s*(utf-8|iso-8859-1)'[^']*'([^;\s]+)", re.IGNORECASE)
_HINT = " With curl: -F image=@dog.jpg"


@dataclass(frozen=True)
class Form:
    files: list[tuple[bytes, str]]  # content and name
    fields: list[tuple[str, str]]  # name and text


def parse(content: bytes, content_type: str) -> Form:
    """Return the files of a form, at least one, and its fields."""
    _, options = parse_options_header(content_type[:_MAX_HEADER_LENGTH])
    if not options.get(b"boundary"):
        raise RejectedError(400, "multipart: expected a boundary in Content-Type, got none")
    boundary = options[b"boundary"]
    try:
        form = _Parts()
        MultipartParser(
            boundary,
            {
                "on_part_begin": form.begin_part,
                "on_header_field": form.add_header_name,
                "on_header_value": form.add_header_value,
                "on_header_end": form.end_header,
                "on_headers_finished": form.end_headers,
                "on_part_data": form.add_content,
                "on_end": form.end,
            },
        ).write(_without_preamble(content, boundary))
    except FormParserError as error:
        raise RejectedError(400, f"multipart: cannot be read: {error}") from error
    if not form.is_complete:
        raise RejectedError(400, "multipart: ends before its last boundary")
    if not form.files:
        raise RejectedError(400, f"multipart: expected a file, got none.{_HINT}")
    files = [(b"".join(chunks), name) for name, chunks in form.files]
    fields = [(name, bytes(text).decode("utf-8", "replace")) for name, text in form.fields]
    return Form(files, fields)


def _without_preamble(content: bytes, boundary: bytes) -> bytes:
    """Drop what RFC 2046 allows around the first boundary: text before it, spaces after it.

    The parser refuses both, or mistakes a hyphen in the text for the boundary.
    """
    line = b"--" + boundary
    end = 0
    for _ in range(_MOST_MENTIONS):
        start = content.find(line, end)
        end = start + len(line)
        if start < 0:
            break
        begins_line = content[max(start - 1, 0) : start] in (b"", b"\n", b"\r")
        found = _AFTER_BOUNDARY.match(content, end)
        if found and found[1] == b"\r\n" and begins_line:
            return line + content[found.start(1) :]
        if found:  # a line without its CR, the end of the form, or a boundary after other text
            break
    return content  # the parser refuses it


class _Parts:
    """The parser's callbacks, which collect files and fields."""

    def __init__(self) -> None:
        self.files: list[tuple[str, list[bytes]]] = []
        self.fields: list[tuple[str, bytearray]] = []
        self.is_complete = False
        self._is_file = False
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""

    def begin_part(self) -> None:
        self._disposition = b""

    def add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def end_headers(self) -> None:
        disposition = self._disposition.decode("latin-1")
        _, options = parse_options_header(disposition)
        is_plain = b"filename" in options
        name = _unescaped(options[b"filename"]) if is_plain else _extended_name(disposition)
        self._is_file = name is not None
        if name is not None:
            self.files.append((name, []))
            check_count(len(self.files))
        else:
            field_name = options.get(b"name", b"")[:_MAX_HEADER_LENGTH]
            if not field_name:
                expected = 'name="…" or filename="…" in each part'
                raise RejectedError(400, f"multipart: expected {expected}, got neither.{_HINT}")
            self.fields.append((_unescaped(field_name), bytearray()))
            if len(self.fields) > _MAX_FIELDS:
                limit = f"at most {_MAX_FIELDS} fields"
                raise RejectedError(400, f"multipart: expected {limit}, got more")

    def add_content(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.files[-1][1].append(data[start:end])
            return
        name, text = self.fields[-1]
        text += data[start:end]
        if len(text) > _MAX_FIELD_LENGTH:
            limit = f"at most {_MAX_FIELD_LENGTH} bytes"
            raise RejectedError(400, f"multipart: {shown(name)}: expected {limit}, or a file name")

    def end(self) -> None:
        self.is_complete = True


def _extended_name(disposition: str) -> str | None:
    """Return the name in filename*=, which forms should not use but some programs do."""
    found = _EXTENDED_NAME.search(disposition)
    return None if found is None else unquote(found[2], encoding=found[1], errors="replace")


def _unescaped(name: bytes) -> str:
    return re.sub(
        "|".join(_ESCAPES), lambda found: _ESCAPES[found[0]], name.decode("utf-8", "replace")
    )
