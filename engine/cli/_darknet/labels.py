"""The label file of a picture, as darknet's commands read it."""

from __future__ import annotations

from pathlib import Path

from engine.cli._stderr import print_stderr
from engine.files.naming import shown


def labels_of(path: str, classes: int) -> list[tuple[int, list[float]]]:
    """Return class, x, y, width and height of the objects in a picture; report what is wrong."""
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
