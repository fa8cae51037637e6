"""Names of files and pictures in one-line messages."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

_MAX_LENGTH = 200
_MAX_BYTES = 120  # as file systems count bytes; leaves room for a number and an extension
_BYTE = re.compile(r"\\u(dc[89a-f][0-9a-f])")  # that is not UTF-8
# The user and the password of an address, also of one whose password has a / or another character
# that is to be encoded: what should be its port is no number then.
_LOGIN = re.compile(r"(?<=://)(?:[^/?#]*@|(?!\[)[^/?#@:]*:(?!\d+[/?#])[^/?#@]*[/?#].*@)", re.DOTALL)
# What may be a login: a word up to its last @, except one of a name such as a@2x.jpg.
_WORD = re.compile(r"\S+")
_UP_TO_LAST_AT = re.compile(r".*@(?!\dx\.)", re.DOTALL)
_MAYBE_LOGIN = re.compile(r"(?<=\w\w:/)(/*)(?!\[)[^/?#@]*:.*@", re.DOTALL)
_NUMBER = re.compile(r"-[0-9]+$")


def without_login(name: str) -> str:
    """Leave the user and the password out of an address."""
    end = name.rfind("@") + 1  # searched up to there, so that a long text takes linear time
    return _LOGIN.sub("", name[:end]) + name[end:] if end and "://" in name else name


def without_logins(text: str) -> str:
    """Leave out of a message what may be a user and a password, such as admin:12/x in an address.

    More is left out than without_login() does: this is for texts that name nothing afterwards.
    """
    return _WORD.sub(_word_without_login, text) if "@" in text and ":/" in text else text


def _word_without_login(word: re.Match[str]) -> str:
    start = _UP_TO_LAST_AT.match(word[0])
    return _MAYBE_LOGIN.sub(r"\1", start[0]) + word[0][start.end() :] if start else word[0]


def escaped(text: str) -> str:
    """Escape control characters and undecodable bytes; leave a login out of an address."""
    text = without_login(without_logins(text))
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def escaped_bytes(text: str) -> str:
    """Escape undecodable bytes alone, so that the text is valid UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def unescaped_bytes(text: str) -> str:
    """Return the name of a file that escaped_bytes() has written as text."""
    return _BYTE.sub(lambda found: chr(int(found[1], 16)), text)


def shown(name: str | Path) -> str:
    """Return a name for a message: printable, without a password, and shortened in the middle."""
    printable = escaped(str(name))
    if len(printable) <= _MAX_LENGTH:
        return printable
    half = _MAX_LENGTH // 2
    return f"{printable[:half]}…{printable[-half:]}"


def line_of(error: object) -> str:
    """Return the text of an error on one line, or its type if it has none."""
    return shown(" ".join(str(error).split())) or type(error).__name__


def name_and_size(path: str | None, size: tuple[int, int]) -> str:
    """Describe a picture, such as: street.jpg, 640 x 480."""
    return f"{'picture' if path is None else shown(path)}, {size[0]} x {size[1]}"


def folder_name_of(label: str) -> str:
    """Turn any label into a valid name of a folder."""
    name = "".join(each if each.isalnum() or each in " -_.,()'" else "_" for each in label)
    return shortened(name.strip(" .")) or "_"


def crop_stem(stem: str, number: int) -> str:
    """Return the stem for the number-th crop of a label in the picture `stem`.

    x has x, x-2, …; x-2 has x-2-1, x-2-2, …: no two crops share a name.
    """
    return f"{stem}-{number}" if number > 1 or _NUMBER.search(stem) else stem


def without_crop_number(name: str) -> str:
    """Return x for x-2, which may be the second crop of x, and x for x."""
    return _NUMBER.sub("", name)


def stem_and_suffix(path: str) -> tuple[str, str]:
    """Return what pathlib calls stem and suffix, four times as fast: a run asks for millions."""
    name = os.path.basename(path)  # noqa: PTH119
    if name in ("", ".", ".."):
        name = PurePath(path).name
    dot = name.rfind(".")
    return (name[:dot], name[dot:]) if 0 < dot < len(name) - 1 else (name, "")


def shortened(name: str, most: int = _MAX_BYTES) -> str:
    """Cut a name that is too long for a file, to at most `most` bytes."""
    name = name[:most]
    while len(os.fsencode(name)) > most:
        name = name[:-1]
    return name
