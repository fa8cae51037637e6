"""The pictures that a request brings: a body, the files of a form, or JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import InputError, suggest
from engine.files.naming import shown
from engine.serve import multipart
from engine.serve.rejection import RejectedError
from engine.serve.server_limits import check_count

JSON_TYPE = "application/json"

_PICTURE_KEYS = ("data", "url", "name")
_MAX_URL_LENGTH = 8192
_MAX_NAME_LENGTH = 1024
_MAX_SHOWN = 4  # maximum number of keys in a message
_MAX_VALUES = 100_000  # in JSON, where a value takes many times the memory of its text


@dataclass(frozen=True)
class Upload:
    """An encoded picture, or the address of one."""

    content: bytes = b""
    name: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Uploads:
    pictures: tuple[Upload, ...]
    is_list: bool = False  # whether the response is a list, too
    settings: Mapping[str, Any] = field(default_factory=dict)


def from_form(content: bytes, content_type: str) -> Uploads:
    form = multipart.parse(content, content_type)
    pictures = tuple(Upload(content, name) for content, name in form.files)
    settings = dict(form.fields)
    if len(settings) < len(form.fields):
        names = ", ".join(map(shown, settings))
        raise InputError(f"form: expected {names} once, got one of them twice")
    return Uploads(pictures, is_list=len(pictures) > 1, settings=settings)


def from_json(content: bytes) -> Uploads:
    """Return the pictures of {"data" or "url": …} or {"images": [the same, …]} and the settings."""
    document = parse_object(content)
    settings = {key: document[key] for key in document if key not in (*_PICTURE_KEYS, "images")}
    if "images" not in document:
        return Uploads((_picture(document, "body"),), settings=settings)
    if extra := next((key for key in _PICTURE_KEYS if key in document), None):
        raise InputError(f"{extra}: expected in an entry of images, got it outside of them")
    images = document["images"]
    if not (isinstance(images, list) and images):
        raise InputError(f"images: expected a list of pictures, got {brief(images)}")
    check_count(len(images))
    pictures = tuple(_entry(each, f"images[{number}]") for number, each in enumerate(images))
    return Uploads(pictures, is_list=True, settings=settings)


def parse_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in a body."""
    if sum(content.count(each) for each in (b",", b"[", b"{")) > _MAX_VALUES:
        raise RejectedError(413, f"body: expected at most {_MAX_VALUES} values, got more")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RejectedError(400, f"body: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise RejectedError(400, f"body: expected a JSON object, got {brief(document)}")
    return document


def decode_base64(text: Any, where: str) -> bytes:
    """Return the bytes of base64 text, which may have line breaks and the prefix of a data: URL."""
    if not isinstance(text, str):
        raise InputError(f"{where}: expected a picture in base64, got {brief(text)}")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{where}: expected a picture in base64, got other text") from None
    if not content:
        raise InputError(f"{where}: expected a picture in base64, got nothing")
    return content


def brief(value: Any) -> str:
    """Return a short description of a JSON value."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return shown(json.dumps(value)[:40])


def _entry(entry: Any, where: str) -> Upload:
    if isinstance(entry, str):
        return Upload(decode_base64(entry, where))
    if not isinstance(entry, dict):
        raise InputError(f"{where}: expected an object or base64, got {brief(entry)}")
    if unknown := next((key for key in entry if key not in _PICTURE_KEYS), None):
        expected = ", ".join(_PICTURE_KEYS)
        hint = suggest(unknown, _PICTURE_KEYS)
        raise InputError(f"{where}: {shown(unknown)}: expected {expected}.{hint}")
    return _picture(entry, where)


def _picture(entry: Mapping[str, Any], where: str) -> Upload:
    name, url = entry.get("name"), entry.get("url")
    for key, value, most in (("name", name, _MAX_NAME_LENGTH), ("url", url, _MAX_URL_LENGTH)):
        if value is not None and not (isinstance(value, str) and len(value) <= most):
            expected = f"text of at most {most} characters"
            raise InputError(f"{where}: {key}: expected {expected}, got {brief(value)}")
    if ("data" in entry) == (url is not None):
        keys = list(entry)[:_MAX_SHOWN]
        got = "both" if url is not None else ", ".join(map(shown, keys)) or "none"
        hint = next(filter(None, (suggest(each, (*_PICTURE_KEYS, "images")) for each in keys)), "")
        raise InputError(f"{where}: expected data (base64) or url, got {got}.{hint}")
    if url is not None:
        return Upload(name=name or url, url=url)
    return Upload(decode_base64(entry["data"], f"{where}: data"), name)
