"""RunFolder: the files that predict() writes, in runs/detect/predict (or classify), predict2, …"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from engine.compat.ultralytics.results import Results
from engine.errors import EngineError, InputError
from engine.evaluate.dataset import all_labels
from engine.files.atomic import NewFile, make_folder
from engine.files.naming import shortened, shown
from engine.sources.expand import expand
from engine.sources.item import Item
from engine.sources.media import is_url, url_path
from engine.sources.pictures import is_endless, name_of
from engine.vision.frame import Frame

if TYPE_CHECKING:
    from engine.sources.video_writer import VideoWriter


class _Video:
    """What is written for one video: its annotated copy, and names for its frames."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        self.frames = 0
        self.last = -1
        self.writer: VideoWriter | None = None


class RunFolder:
    """The folder of one run: pictures, one annotated copy of each video, labels and crops."""

    def __init__(
        self,
        path: Path,
        *,
        save: bool,
        save_txt: bool,
        save_conf: bool,
        save_crop: bool,
        exist_ok: bool = False,
        drawing: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the folder, or one with a number if it exists: nothing is replaced.

        With `exist_ok` an existing folder is used, and files of the same names are replaced.
        `drawing` are options of plot().
        """
        self.path, number = path, 1
        while self.path.exists() and not exist_ok:
            number += 1
            self.path = path.with_name(f"{path.name}{number}")
        self._is_new = not self.path.exists()
        make_folder(self.path)
        self._exist_ok = exist_ok
        self._written: set[Path] = set()
        self._crops: set[str] = set()  # names that this run has used
        self._save, self._save_txt, self._save_conf = save, save_txt, save_conf
        self._save_crop, self._drawing = save_crop, dict(drawing or {})
        self._videos: dict[str, _Video] = {}
        self._stems: set[str] = set()  # of videos

    def refuse_pictures_here(self, sources: object) -> None:
        """Raise if an existing folder holds sources whose names are known in advance."""
        if self._is_new or not isinstance(sources, (list, tuple)):
            return
        for media in expand(name for each in sources if (name := _name_of(each)) is not None):
            self._refuse_input(media.name)

    def _refuse_input(self, name: str) -> None:
        """Raise if the run would replace a picture that is read, or its labels."""
        if self._is_new or is_url(name):
            return
        folder = os.path.realpath(os.path.dirname(name))  # noqa: PTH120
        if self._save and folder == os.path.realpath(self.path):
            raise InputError(
                f"{shown(self.path)}: is a folder that pictures are read from, which may be "
                "replaced. Pass another project or name"
            )
        crops = os.path.realpath(self.path / "crops")
        if self._save_crop and PurePath(folder).is_relative_to(crops):
            raise InputError(
                f"{shown(self.path)}: its crops are read, and may be replaced. "
                "Pass another project or name"
            )
        if not self._save_txt:
            return
        labels = self.path / "labels" / f"{_stem_of(name)}.txt"
        if os.path.realpath(labels) in map(os.path.realpath, all_labels(Path(name))):
            raise InputError(
                f"{shown(self.path)}: save_txt would replace labels of {shown(name)}. "
                "Pass another project or name"
            )

    def write(self, result: Results, item: Item) -> None:
        """Write what was asked for of one picture or frame."""
        self._refuse_input(result.result.path or item.source_name)
        video = self._video_of(item)
        if video is None:
            stem = _stem_of(result.path) or "image0"
        else:
            stem = f"{video.stem}_{video.frames}"
        if self._save:
            if video is None:
                result.save(self._unused(self.path / f"{stem}.jpg"), **self._drawing)
            else:
                self._add_frame(video, result, item)
        if result.boxes is None and self._save_crop:
            raise InputError("save_crop: expected a detector, got a classifier, which has no boxes")
        if self._save_txt:
            make_folder(self.path / "labels")
            path = self._unused(self.path / "labels" / f"{stem}.txt")
            path.unlink(missing_ok=True)  # only with exist_ok; save_txt() appends
            result.save_txt(path, self._save_conf)
        if self._save_crop:
            number, name = 1, stem
            while name in self._crops:
                number += 1
                name = f"{stem}_{number}"
            written = result.save_crop(self.path / "crops", f"{name}.jpg", overwrite=self._exist_ok)
            self._crops.update(path.stem for path in written)

    def finish(self) -> None:
        """Complete the videos."""
        while self._videos:
            _, video = self._videos.popitem()
            if video.writer is not None:
                video.writer.finish()

    def _video_of(self, item: Item) -> _Video | None:
        """Return the video of a frame; complete those before it, unless they are live."""
        frame = item.frame
        name = None if frame is None else frame.video
        for other, before in list(self._videos.items()):
            if frame is not None and other == name:
                ends = frame.number <= before.last  # the same video once more
            else:
                ends = not is_endless(other)
            if ends and (done := self._videos.pop(other)).writer is not None:
                done.writer.finish()
        if frame is None:
            return None
        video = self._videos.get(frame.video)
        if video is None:
            video = self._videos[frame.video] = _Video(self._new_stem(frame))
        video.frames += 1
        video.last = frame.number
        return video

    def _new_stem(self, frame: Frame) -> str:
        stem = made = _stem_of(frame.video) or "video"
        number = 1
        while made in self._stems:
            number += 1
            made = f"{stem}_{number}"
        self._stems.add(made)
        return made

    def _add_frame(self, video: _Video, result: Results, item: Item) -> None:
        from engine.sources.video_writer import VideoWriter, extension_for

        assert item.frame
        if video.writer is None:
            path = self._unused(self.path / f"{video.stem}{extension_for(item.frame.video)}")
            video.writer = VideoWriter(NewFile(path, overwrite=self._exist_ok), item)
        drawn = result.plot(pil=True, **self._drawing)
        try:
            video.writer.add(drawn, item.frame)
        except EngineError:
            video.writer = None  # which has removed its file
            raise

    def _unused(self, path: Path) -> Path:
        """Return the path, or picture_2.jpg, … if another picture has the same name."""
        made, number = path, 1
        while made in self._written or (made.exists() and not self._exist_ok):
            number += 1
            made = path.with_stem(f"{path.stem}_{number}")
        self._written.add(made)
        if made.is_symlink():  # what it names may be a picture that is read
            made.unlink()
        return made


def _name_of(source: object) -> str | None:
    """Return the name of a source, also that of the file of a Pillow image or an open file."""
    own = getattr(source, "name", None) if hasattr(source, "read") else source
    return name_of(getattr(source, "filename", own))


def _stem_of(name: str) -> str:
    return shortened(PurePath(url_path(name) if is_url(name) else name).stem)
