"""The label file of a picture, as darknet's commands read it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.cli._stderr import print_stderr
from engine.files.naming import shown


def labels_of(path: str, classes: int) -> list[tuple[int, list[float]]]:
    """Return class, x, y, width and height of the objects in a picture; print problems."""
    from engine.evaluate.dataset import find_labels, usual_label_file
    from engine.evaluate.yolo_labels import read_lines

    file = find_labels(Path(path))
    if file is None or file.suffix != ".txt":
        usual = shown(usual_label_file(Path(path)))
        print(f"Can't open label file. (This can be normal only if you use MSCOCO): {usual} ")
        return []
    problems: list[str] = []
    found = read_lines(file, classes, problems)
    for problem in problems:
        print_stderr(f"Warning: {problem}")
    return found


def warn_of_labels_of_others(paths: Iterable[str]) -> None:
    """Warn about label files that detect wrote for pictures with other names.

    Darknet goes by names alone; `engine evaluate` goes by the record next to such files.
    """
    from engine.evaluate.dataset import find_labels
    from engine.outputs.written_labels import WrittenLabels

    written = WrittenLabels()
    others = [
        (file, path, own)
        for path in paths
        if (file := find_labels(Path(path))) and (own := written.picture_of(file))
        if Path(own).name != Path(path).name
    ]
    if others:
        file, path, own = others[0]
        example = f"{shown(str(file))} for {shown(path)}, written for {shown(own)}"
        what = f"label files that detect wrote for pictures of other names: {len(others)}"
        print_stderr(f"Warning: {what}, such as {example}. To use its record: engine evaluate")
