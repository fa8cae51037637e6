"""One picture for a detector, with its origin."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ImageError
from engine.vision.frame import Frame
from engine.vision.image import Source


@dataclass(frozen=True, eq=False)
class Item:
    """A source that a detector can read, and its name in messages and outputs."""

    name: str
    source: Source | ImageError
    frame: Frame | None = None
    output: str = ""  # prefix of output file names: folders and a stem
    member: str = ""  # its path inside an archive
    folder: str = ""  # output folder of a member, unless names are flat
    is_picture: bool = True  # False for the error of a folder, list, archive, video or camera

    @property
    def source_name(self) -> str:
        """The picture or, for a frame, its video."""
        return self.frame.video if self.frame else self.name
