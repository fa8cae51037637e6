"""Detect name clashes of pictures with frames: frame 12 of v.mp4 is called v_000012."""

from __future__ import annotations

from engine.outputs.file_names import video_of


class FrameNames:
    """The names of videos, and of pictures whose names look like those of video frames."""

    def __init__(self) -> None:
        self._videos: set[str] = set()
        self._with_pictures: set[str] = set()  # video names whose frames would clash with a picture

    def add(self, name: str, *, is_video: bool) -> None:
        if is_video:
            self._videos.add(name)
        elif video := video_of(name):
            self._with_pictures.add(video)

    def clash(self, name: str, *, is_video: bool) -> bool:
        """Return whether a picture and a video frame would have the same name."""
        return name in self._with_pictures if is_video else video_of(name) in self._videos
