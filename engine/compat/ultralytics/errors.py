"""Errors that can be caught as FileNotFoundError, as with ultralytics."""

from __future__ import annotations

import os

from engine.errors import ImageError, InputError
from engine.sources.media import is_url
from engine.sources.pictures import is_endless


class MissingPictureError(ImageError, FileNotFoundError):
    """A picture, folder or video that is not there, or a folder or pattern without pictures."""


class MissingModelError(InputError, FileNotFoundError):
    """A file of a network that is not there."""


def as_missing(error: ImageError, name: str | None) -> ImageError:
    """Return a MissingPictureError if the name of a source refers to no file."""
    if name is None or is_url(name) or is_endless(name):
        return error
    if os.path.isfile(name):  # noqa: PTH113 - takes names that are too long
        return error
    return MissingPictureError(str(error)).with_traceback(error.__traceback__)
