"""RunFolder: the files that predict() writes, in runs/detect/predict (or classify), predict2, …"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from engine.compat.ultralytics.results import Results
from engine.errors import EngineError, InputError
from engine.evaluate.dataset import all_labels
from engine.files.atomic import NewFile, make_folder
from engine.files.naming import shortened, shown
from engine.files.real_paths import real
from engine.sources.expand import expand
from engine.sources.item import Item
from engine.sources.media import MediaKind, is_url, url_path
from engine.sources.pictures import is_endless, name_of
from engine.vision.frame import Frame

if TYPE_CHECKING:
    from engine.sources.video_writer import VideoWriter


_log = logging.getLogger("engine")

_MAX_STEM = 100  # bytes, leaving room for a number; save_crop() shortens names further


class _Video:
    """The outputs of one video: its annotated copy, and names for its frames."""

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
        """Create the folder, or a numbered one if it exists, so that nothing is replaced.

        With `exist_ok` an existing folder is used, and files of the same names are replaced.
        `drawing` are options of plot().
        """
        self.path = path if exist_ok else _claimed(path)
        self._is_new = not (exist_ok and path.exists())
        make_folder(self.path)
        self._exist_ok = exist_ok
        self._names: set[str] = set()  # names used in this run
        self._save, self._save_txt, self._save_conf = save, save_txt, save_conf
        self._save_crop, self._drawing = save_crop, dict(drawing or {})
        self._videos: dict[str, _Video] = {}
        self._stems: set[str] = set()  # stems of videos
        if not self._is_new:
            self._refuse_links()
        if save_txt:
            make_folder(self._labels("").parent)  # programs list it even if nothing is found

    def _refuse_links(self) -> None:
        """Raise if links lead to folders elsewhere, where files would be replaced."""
        labels, crops = self.path / "labels", self.path / "crops"
        folders = [labels] if self._save_txt else []
        if self._save_crop:
            folders += [crops, *(crops.iterdir() if crops.is_dir() else ())]
        for folder in folders:
            if folder.is_symlink():
                raise InputError(
                    f"{shown(folder)}: is a link to another folder, whose files may be replaced. "
                    "Pass another project or name"
                )

    def refuse_pictures_here(self, sources: object) -> None:
        """Raise if an existing folder holds sources whose names are known in advance."""
        if self._is_new or not isinstance(sources, (list, tuple)):
            return
        for media in expand(name for each in sources if (name := _name_of(each)) is not None):
            if media.kind is not MediaKind.BROKEN:
                self._refuse_input(media.name)

    def _refuse_input(self, name: str) -> None:
        """Raise if the run may replace an input picture or video, or its labels."""
        if self._is_new or is_url(name):
            return
        files = [Path(each) for each in {name, real(name)}]  # a link and its target
        folders = {real(each.parent) for each in files}
        if real(self.path) in folders:
            raise InputError(
                f"{shown(self.path)}: is a folder that pictures are read from, which may be "
                "replaced. Pass another project or name"
            )
        crops = real(self.path / "crops")
        if self._save_crop and any(PurePath(each).is_relative_to(crops) for each in folders):
            raise InputError(
                f"{shown(self.path)}: its crops are read, and may be replaced. "
                "Pass another project or name"
            )
        if not self._save_txt:
            return
        labels = (real(path.parent) for each in files for path in all_labels(each))
        if real(self.path / "labels") in labels:
            raise InputError(
                f"{shown(self.path)}: save_txt would replace labels of {shown(name)}. "
                "Pass another project or name"
            )

    def write(self, result: Results, item: Item) -> None:
        """Write the requested outputs of one picture or frame."""
        self._refuse_input(result.result.path or item.source_name)
        if result.boxes is None and self._save_crop:
            raise InputError("save_crop: expected a detector, got a classifier, which has no boxes")
        video = self._video_of(item)
        if video is not None and self._save:
            self._add_frame(video, result, item)
        if video is None:
            name = self._new_name(_stem_of(result.path) or "image0")
        elif self._save_txt or self._save_crop:
            name = self._new_name(f"{video.stem}_{video.frames}")
        else:
            return
        if video is None and self._save:
            self._save_drawing(self._picture(name), result)
        if self._save_txt:
            self._write_labels(self._labels(name), result)
        if self._save_crop:
            result.write_crops(self.path / "crops", f"{name}.jpg", overwrite=self._exist_ok)

    def _save_drawing(self, path: Path, result: Results) -> None:
        try:
            result.save(_without_link(path), **self._drawing)
        except MemoryError:
            what = "%s: save: the picture to draw on does not fit into memory"
            _log.warning(what, shown(result.path or path))

    def _write_labels(self, path: Path, result: Results) -> None:
        """Write labels. If nothing was found, an existing file stays."""
        is_old = path.exists()  # only with exist_ok
        if is_old and result.boxes is not None and not len(result.boxes):
            what = "%s: nothing was found in the picture now, so its earlier labels are kept"
            _log.warning(what, shown(path))
            return
        path.unlink(missing_ok=True)  # save_txt() appends
        result.save_txt(path, self._save_conf)

    def _picture(self, name: str) -> Path:
        return self.path / f"{name}.jpg"

    def _labels(self, name: str) -> Path:
        return self.path / "labels" / f"{name}.txt"

    def _new_name(self, stem: str) -> str:
        """Return a name for all files of a picture: x, or x_2, … if x is taken."""
        made, number = stem, 1
        while made in self._names or self._is_taken(self._picture(made), self._labels(made)):
            number += 1
            made = f"{stem}_{number}"
        self._names.add(made)
        return made

    def _is_taken(self, *paths: Path) -> bool:
        """Return whether another program has written a file into the new folder."""
        return not self._exist_ok and any(each.exists() for each in paths)

    def finish(self) -> None:
        """Complete the videos."""
        while self._videos:
            _, video = self._videos.popitem()
            if video.writer is not None:
                video.writer.finish()

    def _video_of(self, item: Item) -> _Video | None:
        """Return the video of a frame; complete earlier ones, unless they are live."""
        frame = item.frame
        name = None if frame is None else frame.video
        for other, before in list(self._videos.items()):
            if frame is not None and other == name:
                ends = frame.number <= before.last  # the same video again
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
        drawn = result.plot(pil=True, **self._drawing)
        if video.writer is None:
            path = self.path / f"{video.stem}{extension_for(item.frame.video)}"
            file = NewFile(_without_link(path), overwrite=self._exist_ok)
            video.writer = VideoWriter(file, item)
        try:
            video.writer.add(drawn, item.frame)
        except EngineError:
            video.writer = None  # it has removed its file
            raise


def _without_link(path: Path) -> Path:
    """Remove a link with this name, because its target may be an input."""
    if path.is_symlink():
        path.unlink()
    return path


def _name_of(source: object) -> str | None:
    """Return the name of a source, including the file name of a Pillow image or an open file."""
    own = getattr(source, "name", None) if hasattr(source, "read") else source
    return name_of(getattr(source, "filename", own))


def _stem_of(name: str) -> str:
    return shortened(PurePath(url_path(name) if is_url(name) else name).stem, _MAX_STEM)


def _claimed(path: Path) -> Path:
    """Create a folder that no other call uses, numbered if the path exists."""
    make_folder(path.parent)
    made, number = path, 1
    while True:
        try:
            made.mkdir()
            return made
        except FileExistsError:
            number += 1
            made = path.with_name(f"{path.name}{number}")
        except (OSError, ValueError):
            make_folder(made)  # raises the actual error
            return made
