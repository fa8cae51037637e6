"""The outputs of `detector demo`: a video, pictures, JSON, and network ports."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.cli._darknet import files
from engine.cli._darknet.broadcast import JsonPort, MjpegPort
from engine.cli._darknet.test import document_at
from engine.cli._output_files import ReservedPaths, check_output, make_folder
from engine.cli._stderr import print_stderr

if TYPE_CHECKING:
    from PIL import Image

    from engine.cli._sinks.json_documents import DarknetDocument
    from engine.sources.item import Item
    from engine.sources.video_writer import VideoWriter
    from engine.vision.result import Result

_JPEG_QUALITY = 40  # darknet's value for frames sent to browsers


class Shown(NamedTuple):
    """One frame with its objects; `drawn` shows the boxes unless -dontdraw_bbox is given."""

    number: int  # from 1
    item: Item
    result: Result
    drawn: Image.Image


class DemoOutputs:
    """All outputs that the options name."""

    def __init__(self, arguments: argparse.Namespace, inputs: Sequence[str | None]) -> None:
        self._reserved = ReservedPaths(inputs)
        self._prefix = arguments.prefix
        self._video_path = arguments.out_filename
        self._json_path = arguments.json_file_output
        self._ports = arguments.mjpeg_port or arguments.http_port, arguments.json_port
        self._video: VideoWriter | None = None
        self._document: DarknetDocument | None = None
        self._mjpeg: MjpegPort | None = None
        self._json: JsonPort | None = None
        if self._video_path:
            from engine.sources.video_writer import check_extension

            check_extension(self._video_path)

    @property
    def are_visible(self) -> bool:
        return bool(self._prefix or self._video_path or self._ports[0])

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open all outputs; complete them at the end, even after an interrupt."""
        if self._video_path:
            check_output("-out_filename", self._video_path, self._reserved, overwrite=True)
        if self._prefix:
            make_folder("-prefix", str(Path(f"{self._prefix}_").parent))
        with ExitStack() as stack:
            mjpeg, json = self._ports
            if mjpeg:
                self._mjpeg = MjpegPort("-mjpeg_port", mjpeg)
                stack.callback(self._mjpeg.close)
                print_stderr(f"-mjpeg_port {mjpeg}: everybody who reaches it can see the frames")
            if json:
                self._json = JsonPort("-json_port", json)
                stack.callback(self._json.close)
            self._document = stack.enter_context(
                document_at("-json_file_output", self._json_path, self._reserved)
            )
            try:
                yield
            except KeyboardInterrupt:  # the usual way to stop a camera
                self._finish_video()
                raise
            except BaseException:
                if self._video:
                    self._video.discard()
                raise
            self._finish_video()

    def take(self, shown: Shown) -> None:
        """Write and send one frame."""
        from engine.vision.encode import encode
        from engine.vision.serialize import darknet_entry

        if self._video_path:
            assert shown.item.frame
            self._video_of(shown.item).add(shown.drawn, shown.item.frame)
        if self._prefix:
            path = Path(f"{self._prefix}_{shown.number:08d}.jpg")
            files.write(path, encode(shown.drawn, path), self._reserved, option="-prefix")
        if self._mjpeg:
            content = BytesIO()
            shown.drawn.convert("RGB").save(content, "JPEG", quality=_JPEG_QUALITY)
            self._mjpeg.send_jpeg(content.getvalue())
        if self._json:
            self._json.send_entry(darknet_entry(shown.result, shown.number))
        if self._document:
            self._document.take(shown.item, shown.result, 0.0)

    def _video_of(self, item: Item) -> VideoWriter:
        from engine.files.atomic import NewFile
        from engine.sources.video_writer import VideoWriter

        if self._video is None:
            self._video = VideoWriter(NewFile(self._video_path, overwrite=True), item)
        return self._video

    def _finish_video(self) -> None:
        if self._video:
            self._video.finish()
            print("output_video_writer closed. ")
