"""Names of pictures that are also those of the frames of a video, such as v_000012 and v.mp4."""

from __future__ import annotations

from engine.outputs.file_names import video_of


class FrameNames:
    """The names of outputs that are taken, as far as videos and their frames are concerned."""

    def __init__(self) -> None:
        self._videos: set[str] = set()
        self._with_pictures: set[str] = set()  # names of videos of which frames would have pictures

    def add(self, name: str, *, is_video: bool) -> None:
        if is_video:
            self._videos.add(name)
        elif video := video_of(name):
            self._with_pictures.add(video)

    def clash(self, name: str, *, is_video: bool) -> bool:
        """Tell whether a picture would have the name of a frame, or a frame that of a picture."""
        return name in self._with_pictures if is_video else video_of(name) in self._videos
