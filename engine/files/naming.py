"""Names of files and pictures in one-line messages."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

_MAX_LENGTH = 200
_MAX_BYTES = 120  # bytes, as in file systems; leaves room for a number and an extension
_BYTE = re.compile(r"\\u(dc[89a-f][0-9a-f])")  # an escaped byte that is not UTF-8
# The user and the password of a URL, even if the password has an unencoded / or similar character:
# then the text in the place of the port is not a number.
_USER = r"(?:[^/?#]*@|(?!\[)[^/?#@:]*:(?!\d+[/?#])[^/?#@]*[/?#].*@)"
_LOGIN = re.compile(f"(?<=://){_USER}", re.DOTALL)
_LOGIN_IN_TEXT = re.compile(rf"(?<=\w\w:/)(/*){_USER}", re.DOTALL)  # a Path turns // into /
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"-[0-9]+$")


def without_login(name: str) -> str:
    """Remove the user and the password from a URL."""
    end = name.rfind("@") + 1  # limits the search, so that a long text takes linear time
    return _LOGIN.sub("", name[:end]) + name[end:] if end and "://" in name else name


def without_logins(text: str) -> str:
    """Remove users and passwords from the URLs in a message."""
    return _WORD.sub(_word_without_login, text) if "@" in text and ":/" in text else text


def _word_without_login(found: re.Match[str]) -> str:
    word = found[0]
    end = word.rfind("@") + 1  # limits the search, so that a long word takes linear time
    return _LOGIN_IN_TEXT.sub(r"\1", word[:end]) + word[end:]


def printable(text: str) -> str:
    """Escape control characters and undecodable bytes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def escaped(text: str) -> str:
    """Return a name as printable() does, without the login of a URL."""
    return printable(without_login(text))


def escaped_bytes(text: str) -> str:
    """Escape only undecodable bytes, so that the text is valid UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def unescaped_bytes(text: str) -> str:
    """Undo escaped_bytes(): return the name of the file."""
    return _BYTE.sub(lambda found: chr(int(found[1], 16)), text)


def shown(name: str | Path) -> str:
    """Return a name for a message: printable, without a login, and shortened in the middle."""
    return _cut_in_middle(escaped(str(name)))


def shown_text(text: str) -> str:
    """Return the text of a code for a table: printable, and shortened in the middle."""
    return _cut_in_middle(printable(text))


def _cut_in_middle(text: str) -> str:
    if len(text) <= _MAX_LENGTH:
        return text
    half = _MAX_LENGTH // 2
    return f"{text[:half]}…{text[-half:]}"


def line_of(error: object) -> str:
    """Return the text of an error on one line, or its type if it has none."""
    return shown(" ".join(str(error).split())) or type(error).__name__


def name_and_size(path: str | None, size: tuple[int, int]) -> str:
    """Describe a picture, such as: street.jpg, 640 x 480."""
    return f"{'picture' if path is None else shown(path)}, {size[0]} x {size[1]}"


def folder_name_of(label: str) -> str:
    """Convert any label to a valid folder name."""
    name = "".join(each if each.isalnum() or each in " -_.,()'" else "_" for each in label)
    return shortened(name.strip(" .")) or "_"


def crop_stem(stem: str, number: int) -> str:
    """Return the stem for the number-th crop of a label in the picture `stem`.

    x has x, x-2, …; x-2 has x-2-1, x-2-2, …: no two crops share a name.
    """
    return f"{stem}-{number}" if number > 1 or _NUMBER.search(stem) else stem


def without_crop_number(name: str) -> str:
    """Return x both for x-2, which may be the second crop of x, and for x."""
    return _NUMBER.sub("", name)


def stem_and_suffix(path: str) -> tuple[str, str]:
    """Return pathlib's stem and suffix four times as fast, as a run needs millions."""
    name = os.path.basename(path)  # noqa: PTH119
    if name in ("", ".", ".."):
        name = PurePath(path).name
    dot = name.rfind(".")
    return (name[:dot], name[dot:]) if 0 < dot < len(name) - 1 else (name, "")


def shortened(name: str, most: int = _MAX_BYTES) -> str:
    """Shorten a name that is too long for a file to at most `most` bytes."""
    name = name[:most]
    while len(os.fsencode(name)) > most:
        name = name[:-1]
    return name
