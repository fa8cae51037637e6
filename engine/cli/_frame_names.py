"""Keep the outputs of pictures and of frames apart: frame 12 of v.mp4 is called v_000012."""

from __future__ import annotations

from engine.outputs.file_names import video_of


class FrameNames:
    """The names that videos have, and those of pictures that are called like a frame of a video."""

    def __init__(self) -> None:
        self._videos: set[str] = set()
        self._with_pictures: set[str] = set()  # not for videos: pictures are called like frames

    def add(self, name: str, *, is_video: bool) -> None:
        if is_video:
            self._videos.add(name)
        elif video := video_of(name):
            self._with_pictures.add(video)

    def clash(self, name: str, *, is_video: bool) -> bool:
        """Tell whether a picture would have the name of a frame, or a frame that of a picture."""
        return name in self._with_pictures if is_video else video_of(name) in self._videos
