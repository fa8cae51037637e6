"""Expand the names that a user gives (folders, patterns, lists) into pictures and videos."""

from __future__ import annotations

import errno
import fnmatch
import glob
import logging
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath

from engine.errors import InputError
from engine.files.naming import shown
from engine.sources import list_file
from engine.sources.media import Media, MediaKind, is_camera, is_url, media_of, without_file_scheme
from engine.sources.other_formats import OtherFormats
from engine.vision.extensions import is_picture

STDIN = "-"

_NO_MATCH = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_MATCHES_ALL = re.compile(r"(^|/)\*\*(/\*)*$")

_MAX_FOLDERS = 1000  # that are visited for a warning

_log = logging.getLogger("engine")

_LEFT_OUT = {MediaKind.VIDEO: "video(s)", MediaKind.ARCHIVE: ".tar file(s)"}


def expand(
    names: Iterable[str], *, recursive: bool = False, lines: Iterable[str] = ()
) -> Iterator[Media]:
    """Yield the media that the names refer to, lazily and in order; `lines` replaces the name `-`.

    A folder or pattern yields its pictures sorted by name, a .txt file the names in its lines.
    """
    for name in names:
        if name == STDIN:
            for line in list_file.parse_lines(lines):
                yield from _expand_name(line, recursive=recursive)
        else:
            yield from _expand_name(name, recursive=recursive)


def _expand_name(name: str, *, recursive: bool) -> Iterator[Media]:
    name = without_file_scheme(name)
    if not _is_list(name):
        yield from _expand_entry(name, recursive=recursive)
        return
    try:
        entries = list_file.read(name)
    except InputError as error:
        yield Media(name, MediaKind.BROKEN, str(error))
        return
    for entry in map(without_file_scheme, entries):
        if _is_list(entry):
            problem = f"{shown(name)}: names another list, {shown(entry)}"
            yield Media(entry, MediaKind.BROKEN, problem)
        else:
            yield from _expand_entry(entry, recursive=recursive)


def _is_list(name: str) -> bool:
    return name.lower().endswith(".txt") and not is_url(name) and not _is_folder(name)


def _expand_entry(name: str, *, recursive: bool) -> Iterator[Media]:
    if is_url(name) or is_camera(name):
        yield media_of(name)
    elif _is_folder(name):
        yield from _expand_folder(name, recursive=recursive)
    elif glob.has_magic(name) and not os.path.lexists(name):
        yield from _expand_pattern(name, recursive=recursive)
    else:
        yield media_of(name)


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a NUL byte or too long a name, which reading it will report
        return False


def _expand_folder(name: str, *, recursive: bool, may_be_empty: bool = False) -> Iterator[Media]:
    errors: list[OSError] = []  # about folders that may not be read
    found = sorted(_pictures_in(name, errors, recursive=recursive))
    others = _warn_about_what_is_left_out(name, recursive=recursive)
    yield from _problems(errors)
    if not (found or errors or may_be_empty):
        hint = "" if recursive or others else " Look into its folders with --recursive."
        yield Media(name, MediaKind.BROKEN, f"{shown(name)}: folder: has no pictures.{hint}")
    if found and not recursive:
        warn_about_inner_folders(name, "Add --recursive")
    for path in found:
        yield Media(path, MediaKind.PICTURE, root=name)


def _problems(errors: Iterable[OSError]) -> Iterator[Media]:
    """Yield each folder that cannot be read once."""
    reasons = {str(error.filename): error.strerror for error in errors}
    for where, reason in reasons.items():
        problem = f"{shown(where)}: folder: cannot be read: {reason}"
        yield Media(where, MediaKind.BROKEN, problem)


def _warn_about_what_is_left_out(folder: str, *, recursive: bool) -> int:
    """Warn about links, formats that cannot be read, videos and archives; count the last two."""
    other_formats = OtherFormats()
    others: Counter[MediaKind] = Counter()
    links: list[str] = []
    for inner, folders, files in os.walk(folder):
        paths = (os.path.join(inner, each) for each in folders)  # noqa: PTH118
        links += filter(os.path.islink, paths)
        for each in files:
            if other_formats.add(each) or is_picture(each) or each.startswith("."):
                continue
            if (kind := media_of(each).kind) in _LEFT_OUT:
                others[kind] += 1
        if not recursive:
            break
    if links and recursive:  # they may lead in circles
        what = "%s: links to folders are left out: %d. Name them, such as %s"
        _log.warning(what, shown(folder), len(links), shown(min(links)))
    if others:
        found = ", ".join(
            f"{others[kind]} {name}" for kind, name in _LEFT_OUT.items() if others[kind]
        )
        warn_about_other_files(
            folder, found, f"'{folder.rstrip('/')}/{'**' if recursive else '*'}'"
        )
    other_formats.warn(folder)
    return others.total()


def warn_about_other_files(folder: str, found: str, pattern: str) -> None:
    """Warn about files of a folder that hold pictures and are read only when they are named."""
    _log.warning(
        "%s: only pictures of a folder are read, left out: %s. Name them, as with a pattern: %s",
        *(shown(folder), found, shown(pattern)),
    )


def warn_about_inner_folders(folder: str, hint: str) -> None:
    """Warn about the pictures in folders of a folder, which are not read."""
    visited = list(islice(os.walk(folder), 1, _MAX_FOLDERS + 2))
    left_out = sum(is_picture(each) for _, _, files in visited for each in files)
    if left_out:
        _log.warning(
            "%s: its sub-folders are left out, pictures in them: %s%d. %s",
            *(shown(folder), "at least " * (len(visited) > _MAX_FOLDERS), left_out, hint),
        )


def _pictures_in(folder: str, errors: list[OSError], *, recursive: bool) -> Iterator[str]:
    for inner, _, files in os.walk(folder, onerror=errors.append):
        for file in files:
            if is_picture(file):
                yield os.path.join(inner, file)  # noqa: PTH118 - keeps ./x as the user wrote it
        if not recursive:
            return


def _expand_pattern(name: str, *, recursive: bool) -> Iterator[Media]:
    """Yield the files that match, and what is in the folders if only folders match or `recursive`.

    A pattern that ends with `**` has gone into all folders itself.
    """
    pattern = name.replace(os.sep, "/")
    unreadable: list[OSError] = []
    is_absolute = pattern.startswith("/")
    parts = pattern.lstrip("/").split("/")
    try:
        matches = set(_matches("/" if is_absolute else "", parts, unreadable))
    except ValueError:  # a NUL byte
        matches = set()
    problems = list(_problems(each for each in unreadable if each.errno not in _NO_MATCH))
    yield from problems
    folders = {path for path in matches if Path(path).is_dir()}
    found = sorted(matches - folders)
    if not (matches or problems):
        problem = f"{shown(name)}: pattern: no file matches"
        if "[" in name:
            problem += ". A [ that is a part of a name is written [[]"
        yield Media(name, MediaKind.BROKEN, problem)
        return
    root = _fixed_folder(pattern)
    for path in found:
        yield media_of(path, root=root)
    if not found:
        for folder in _outermost(folders) if recursive else sorted(folders):
            yield from _expand_folder(folder, recursive=recursive)
    elif not _MATCHES_ALL.search(pattern):
        inner = {each for each in folders if _is_below(each, root)}
        if recursive:
            yield from _expand_inner(_outermost(inner), root, without=matches)
        else:
            _warn_about_folders(name, inner, without=matches)


def _expand_inner(folders: Iterable[str], root: str, without: Container[str]) -> Iterator[Media]:
    """Yield what is in folders that a pattern matches next to files."""
    for folder in folders:
        for media in _expand_folder(folder, recursive=True, may_be_empty=True):
            if media.name not in without or media.kind is MediaKind.BROKEN:
                yield replace(media, root=root)


def _warn_about_folders(pattern: str, folders: Iterable[str], without: Container[str]) -> None:
    """Warn about the files in folders that a pattern matches next to files."""
    paths = (os.path.join(each, file) for each in folders for file in _files_in(each))  # noqa: PTH118
    left_out = sum(_is_media(each) and each not in without for each in paths)
    if left_out:
        _log.warning(
            "%s: folders that match are left out, pictures and videos in them: %d. Add --recursive",
            *(shown(pattern), left_out),
        )


def _files_in(folder: str) -> list[str]:
    return next(os.walk(folder), ("", [], []))[2]


def _is_media(name: str) -> bool:
    return is_picture(name) or media_of(name).kind in _LEFT_OUT


def _is_below(folder: str, root: str) -> bool:
    """Whether a folder is not a link to one that holds it, which would be read once more."""
    real, of_root = Path(folder).resolve(), Path(root).resolve()
    return real != of_root and real not in of_root.parents


def _outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that are in no other one of them, sorted."""
    paths = {PurePath(each): each for each in folders}
    return sorted(each for path, each in paths.items() if paths.keys().isdisjoint(path.parents))


def _fixed_folder(pattern: str) -> str:
    """Return the folders before the first one with a wildcard."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")


def _matches(folder: str, parts: Sequence[str], unreadable: list[OSError]) -> Iterator[str]:
    """Yield the paths below a folder whose parts match, some of them repeatedly.

    Unlike those of `glob`, `**` does not follow links to folders, which may form circles, and
    folders that may not be read are added to `unreadable`.
    """
    part, *others = parts
    if part == "**":
        for inner, folders, _ in os.walk(folder or ".", onerror=unreadable.append):
            folders[:] = [each for each in folders if not each.startswith(".")]
            below = inner if folder else inner.removeprefix(".").removeprefix("/")
            yield from _matches(below, others or ["*"], unreadable)
        return
    try:
        if glob.has_magic(part):
            wanted = re.compile(fnmatch.translate(part))
            names = os.listdir(folder or ".")  # noqa: PTH208 - keeps ./x as the user wrote it
            found = [each for each in names if wanted.match(each)]
            if not part.startswith("."):
                found = [each for each in found if not each.startswith(".")]
        else:
            os.lstat(os.path.join(folder, part))  # noqa: PTH118
            found = [part]
    except OSError as error:
        unreadable.append(error)
        return
    for name in found:
        path = os.path.join(folder, name)  # noqa: PTH118
        if others:
            yield from _matches(path, others, unreadable)
        else:
            yield path
