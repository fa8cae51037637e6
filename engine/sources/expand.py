"""Expand the names that a user gives (folders, patterns, lists) into pictures and videos."""

from __future__ import annotations

import glob
import logging
import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath

from engine.errors import InputError
from engine.files.naming import shown
from engine.files.walk import walk
from engine.sources import list_file, patterns
from engine.sources.left_out import LeftOut
from engine.sources.media import (
    Media,
    MediaKind,
    is_address,
    is_camera,
    media_of,
    without_file_scheme,
)
from engine.vision.extensions import is_picture

STDIN = "-"

_MAX_FOLDERS = 1000  # maximum visited for a warning

_log = logging.getLogger("engine")

_LEFT_OUT = {MediaKind.VIDEO: "video(s)", MediaKind.ARCHIVE: ".tar file(s)"}


def expand(
    names: Iterable[str], *, recursive: bool = False, stdin: Iterable[str] = ()
) -> Iterator[Media]:
    """Yield the media that the names refer to, lazily and in order; those of `stdin` replace `-`.

    A folder or pattern yields its pictures sorted by name, a .txt file the names in its lines.
    """
    for name in names:
        for each in stdin if name == STDIN else (name,):
            yield from _expand_name(each, recursive=recursive)


def _expand_name(name: str, *, recursive: bool) -> Iterator[Media]:
    name = without_file_scheme(name)
    if not _is_list(name):
        yield from _expand_entry(name, recursive=recursive)
        return
    if glob.has_magic(name) and not os.path.lexists(name):
        problem = "a pattern does not find lists. Let the shell expand it: no quotes"
        yield Media(name, MediaKind.BROKEN, f"{shown(name)}: {problem}")
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
    return name.lower().endswith(".txt") and not is_address(name) and not _is_folder(name)


def _expand_entry(name: str, *, recursive: bool) -> Iterator[Media]:
    if is_address(name) or is_camera(name):
        yield media_of(name)
    elif _is_folder(name):
        yield from _expand_folder(name, recursive=recursive)
    elif glob.has_magic(name) and not os.path.lexists(name):
        yield from _expand_pattern(name, recursive=recursive)
    else:
        yield media_of(name)


def _is_folder(name: str) -> bool:
    return os.path.isdir(name)  # noqa: PTH112 - raises nothing: what is wrong is reported later


def _expand_folder(name: str, *, recursive: bool, may_be_empty: bool = False) -> Iterator[Media]:
    errors: list[OSError] = []  # about folders that may not be read
    found = sorted(_pictures_in(name, errors, recursive=recursive))
    others = _warn_about_what_is_left_out(name, recursive=recursive)
    yield from _problems(errors)
    if not (found or errors or may_be_empty):
        hint = "" if recursive or others else f" Its folders are read {_inside(name)}."
        yield Media(name, MediaKind.BROKEN, f"{shown(name)}: folder: has no pictures.{hint}")
    if found and not recursive:
        warn_about_inner_folders(name, f"They are read {_inside(name)}")
    for path in found:
        yield Media(path, MediaKind.PICTURE, root=name)


def _inside(name: str) -> str:
    """Return how to read the contents of folders: an option, or a pattern that works anywhere."""
    pattern = f"'{shown(name.rstrip('/'))}/**/*.*'"
    return f"with --recursive or stream(…, recursive=True), or by the pattern {pattern}"


def _problems(errors: Iterable[OSError]) -> Iterator[Media]:
    """Yield each folder that cannot be read once."""
    reasons = {str(error.filename): error.strerror for error in errors}
    for where, reason in reasons.items():
        problem = f"{shown(where)}: folder: cannot be read: {reason}"
        yield Media(where, MediaKind.BROKEN, problem)


def _warn_about_what_is_left_out(folder: str, *, recursive: bool) -> int:
    """Warn about links, unreadable formats, videos and archives; count the latter two."""
    left_out = LeftOut()
    others: Counter[MediaKind] = Counter()
    links: list[str] = []
    for inner, folders, files in walk(folder):
        paths = (os.path.join(inner, each) for each in folders)  # noqa: PTH118
        links += filter(os.path.islink, paths)
        for each in files:
            if left_out.add(each) or is_picture(each) or each.startswith("."):
                continue
            if (kind := media_of(each).kind) in _LEFT_OUT:
                others[kind] += 1
        if not recursive:
            break
    if links and recursive:  # they may form cycles
        what = "%s: links to folders are skipped: %d. Name them, such as %s"
        _log.warning(what, shown(folder), len(links), shown(min(links)))
    if others:
        found = ", ".join(
            f"{others[kind]} {name}" for kind, name in _LEFT_OUT.items() if others[kind]
        )
        warn_about_other_files(
            folder, found, f"'{folder.rstrip('/')}/{'**' if recursive else '*'}'"
        )
    left_out.warn(folder)
    return others.total()


def warn_about_other_files(folder: str, found: str, pattern: str) -> None:
    """Warn about files in a folder that hold pictures but are read only if named explicitly."""
    _log.warning(
        "%s: only pictures of a folder are read, skipped: %s. Name them, as with a pattern: %s",
        *(shown(folder), found, shown(pattern)),
    )


def warn_about_inner_folders(folder: str, hint: str) -> None:
    """Warn about pictures in subfolders, which are not read."""
    visited = list(islice(walk(folder), 1, _MAX_FOLDERS + 2))
    skipped = sum(is_picture(each) for _, _, files in visited for each in files)
    if skipped:
        least = "at least " * (len(visited) > _MAX_FOLDERS)
        pictures = f"{least}{skipped} picture{'s' * (skipped != 1)}"
        _log.warning("%s: subfolders with %s are skipped. %s", shown(folder), pictures, hint)


def _pictures_in(folder: str, errors: list[OSError], *, recursive: bool) -> Iterator[str]:
    for inner, _, files in walk(folder, onerror=errors.append):
        for file in files:
            if is_picture(file):
                yield os.path.join(inner, file)  # noqa: PTH118 - keeps ./x as the user wrote it
        if not recursive:
            return


def _expand_pattern(name: str, *, recursive: bool) -> Iterator[Media]:
    """Yield the matching files; with `recursive`, or if only folders match, also their contents.

    A pattern that ends with `**` has already descended into all folders.
    """
    pattern = name.replace(os.sep, "/")
    matches, unreadable = patterns.matches(pattern)
    problems = list(_problems(unreadable))
    yield from problems
    folders = set(filter(_is_folder, matches))
    found = sorted(matches - folders)
    if not (matches or problems):
        problem = f"{shown(name)}: pattern: no file matches"
        if "[" in name:
            problem += ". A [ that is a part of a name is written [[]"
        yield Media(name, MediaKind.BROKEN, problem)
        return
    root = patterns.fixed_folder(pattern)
    for path in found:
        yield media_of(path, root=root)
    if not found:
        for folder in _outermost(folders) if recursive else sorted(folders):
            yield from _expand_folder(folder, recursive=recursive)
    elif not patterns.matches_all(pattern):
        inner = {each for each in folders if _is_below(each, root)}
        if recursive:
            yield from _expand_inner(_outermost(inner), root, without=matches)
        else:
            _warn_about_folders(name, inner, without=matches)


def _expand_inner(folders: Iterable[str], root: str, without: Container[str]) -> Iterator[Media]:
    """Yield the contents of folders that a pattern matches in addition to files."""
    for folder in folders:
        for media in _expand_folder(folder, recursive=True, may_be_empty=True):
            if media.name not in without or media.kind is MediaKind.BROKEN:
                yield replace(media, root=root)


def _warn_about_folders(pattern: str, folders: Iterable[str], without: Container[str]) -> None:
    """Warn about the files in folders that a pattern matches in addition to files."""
    paths = (os.path.join(each, file) for each in folders for file in _files_in(each))  # noqa: PTH118
    left_out = sum(_is_media(each) and each not in without for each in paths)
    if left_out:
        _log.warning(
            "%s: folders that match are skipped, pictures and videos in them: %d. They are read %s",
            *(shown(pattern), left_out, _inside(pattern)),
        )


def _files_in(folder: str) -> list[str]:
    return next(walk(folder), ("", [], []))[2]


def _is_media(name: str) -> bool:
    return is_picture(name) or media_of(name).kind in _LEFT_OUT


def _is_below(folder: str, root: str) -> bool:
    """Return whether a folder is no link to `root` or to one around it, which would be reread."""
    real, of_root = Path(folder).resolve(), Path(root).resolve()
    return real != of_root and real not in of_root.parents


def _outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that are not inside another one, sorted."""
    paths = {PurePath(each): each for each in folders}
    return sorted(each for path, each in paths.items() if paths.keys().isdisjoint(path.parents))
