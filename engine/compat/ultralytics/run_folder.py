"""RunFolder: the files that predict() writes, in runs/detect/predict, predict2, …"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from engine.compat.ultralytics.results import Results
from engine.errors import EngineError
from engine.files.atomic import NewFile, make_folder
from engine.files.naming import shortened
from engine.sources.item import Frame, Item
from engine.sources.media import is_url, url_path
from engine.sources.pictures import is_endless

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
        line_width: int | None = None,
    ) -> None:
        """Create the folder, or one with a number if it exists: nothing is replaced."""
        self.path, number = path, 1
        while self.path.exists():
            number += 1
            self.path = path.with_name(f"{path.name}{number}")
        make_folder(self.path)
        self._save, self._save_txt, self._save_conf = save, save_txt, save_conf
        self._save_crop, self._line_width = save_crop, line_width
        self._videos: dict[str, _Video] = {}
        self._stems: set[str] = set()  # of videos

    def write(self, result: Results, item: Item) -> None:
        """Write what was asked for of one picture or frame."""
        video = self._video_of(item)
        if video is None:
            stem = _stem_of(result.path) or "image0"
        else:
            stem = f"{video.stem}_{video.frames}"
        if self._save:
            if video is None:
                result.save(_unused(self.path / f"{stem}.jpg"), line_width=self._line_width)
            else:
                self._add_frame(video, result, item)
        if result.boxes is None:
            return
        if self._save_txt:
            make_folder(self.path / "labels")
            result.save_txt(_unused(self.path / "labels" / f"{stem}.txt"), self._save_conf)
        if self._save_crop:
            crops = self.path / "crops"
            used = {path.stem for path in crops.glob("*/*.jpg")}
            number, name = 1, stem
            while name in used:
                number += 1
                name = f"{stem}_{number}"
            result.save_crop(crops, f"{name}.jpg")

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
            path = _unused(self.path / f"{video.stem}{extension_for(item.frame.video)}")
            video.writer = VideoWriter(NewFile(path), item)
        drawn = result.plot(line_width=self._line_width, pil=True)
        try:
            video.writer.add(drawn, item.frame)
        except EngineError:
            video.writer = None  # which has removed its file
            raise


def _stem_of(name: str) -> str:
    return shortened(PurePath(url_path(name) if is_url(name) else name).stem)


def _unused(path: Path) -> Path:
    """Return the path, or picture_2.jpg, … if another picture has the same name."""
    made, number = path, 1
    while made.exists():
        number += 1
        made = path.with_stem(f"{path.stem}_{number}")
    return made
