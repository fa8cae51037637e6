"""`detector demo`: a video or a camera, frame by frame."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import FAILED
from engine.cli._darknet import files, lines, network, predictions
from engine.cli._darknet.demo_outputs import DemoOutputs, Shown
from engine.cli._darknet.files import Files
from engine.cli._stderr import print_stderr
from engine.errors import ImageError, InputError
from engine.files.naming import escaped, shown

if TYPE_CHECKING:
    from engine.sources.item import Item

_CLEAR = "\033[H\033[J"  # darknet clears the terminal before each frame
_SECONDS_OF_AVERAGE = 3.0
_NO_WINDOW = "no window is opened. See -out_filename, -prefix and -mjpeg_port, or add -dont_show"


def run(
    arguments: argparse.Namespace,
    model: Files,
    *,
    threshold: float,
    names: str | Path | Sequence[str] | None = None,
) -> int:
    """Print the objects of each frame; return the exit status."""
    from engine.vision.rows import suppress_rows

    threshold = threshold if arguments.thresh is None else arguments.thresh
    frames = _frames(model.picture, arguments.c or 0)
    outputs = DemoOutputs(arguments, files.read_by(model, names))
    if not (outputs.are_visible or arguments.dont_show):
        print_stderr(_NO_WINDOW)
    with network.load(arguments, model, names=names) as detector, outputs.opened():
        heading = list(network.heading(detector, model))
        heading.insert(heading[0].startswith(" GPU"), "Demo")
        print(*heading, sep="\n")
        video = model.picture
        print(f"video file: {escaped(video)}" if video else f"Webcam index: {arguments.c or 0}")
        suppression = network.suppression(detector, arguments.nms)
        rate, started, failures = _Rate(), time.perf_counter(), 0
        for number, item in enumerate(frames, start=1):
            if isinstance(item.source, ImageError):
                print_stderr(f"Error: {item.source}")
                return FAILED
            taken = network.read(detector, item.source, has_letterbox=arguments.letter_box)
            # darknet uses -thresh for class trees, too
            found = network.candidates(detector, taken, threshold=threshold, hierarchy=threshold)
            if found.error:
                print_stderr(f"Error: {found.error}")
                failures += 1
            rows = suppress_rows(found.rows, suppression)
            size, extended = found.picture.size, arguments.ext_output
            objects = lines.frame_objects(
                rows, detector.labels, size, threshold=threshold, extended=extended
            )
            print(f"{_CLEAR}Objects:\n", *objects, sep="\n")
            print(f"\nFPS:{rate.now:.1f} \t AVG_FPS:{rate.average:.1f}", flush=True)
            result = replace(predictions.result_of(detector, found.picture, rows), path=None)
            is_plain = arguments.dontdraw_bbox
            drawn = found.picture.to_image() if is_plain else result.plot()
            outputs.take(Shown(number, item, result, drawn))
            rate.step()
            spent = time.perf_counter() - started
            if arguments.time_limit_sec and spent > arguments.time_limit_sec:
                break
        print("input video stream closed. ")
    return FAILED if failures else 0


def _frames(video: str | None, camera: int) -> Iterator[Item]:
    from engine.sources.media import media_of
    from engine.sources.reader import FrameSelection, read_items
    from engine.sources.video import require_pyav

    media = media_of(str(camera) if video is None else video)
    if not media.has_frames:
        problem = media.problem or "expected a video, a stream or no name for the camera"
        raise InputError(f"{shown(media.name)}: {problem}. For a picture see: detector test")
    require_pyav(media.name)
    return read_items((media,), FrameSelection())


@dataclass
class _Rate:
    """The frame rate: smoothed, and averaged over several seconds."""

    now: float = 0.0
    average: float = 0.0
    _frames: int = 0
    _last: float = field(default_factory=time.perf_counter)
    _first: float = field(default_factory=time.perf_counter)

    def step(self) -> None:
        present = time.perf_counter()
        self.now = self.now * 0.9 + 0.1 / max(present - self._last, 1e-9)
        self._last = present
        self._frames += 1
        if present - self._first >= _SECONDS_OF_AVERAGE:
            self.average = self._frames / (present - self._first)
            self._frames, self._first = 0, present
