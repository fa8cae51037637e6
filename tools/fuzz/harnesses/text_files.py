"""Untrusted names, .data, trees, labels, annotations and lists; the first byte selects which."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from engine.darknet import names, tree
from engine.evaluate import coco_files, voc_labels, yolo_labels
from engine.outputs import labelled_pictures
from tools.fuzz import seeds as files

_LABELS = ("cat", "dog", "cow")
_SIZE = (640, 480)

_VOC = b"""<annotation><size><width>640</width><height>480</height></size><object><name>cat</name>
<difficult>1</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>
</object></annotation>"""
_BILLION_LAUGHS = b"""<!DOCTYPE a [<!ENTITY b "bbbbbbbb">
<!ENTITY c "&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;">]>
<annotation><object><name>&d;&d;&d;&d;</name></object></annotation>"""
_COCO = b"""{"images": [{"id": 1, "file_name": "a.jpg", "width": 640, "height": 480}],
"categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}, {"id": 3, "name": "cow"}],
"annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 2, 3.5, 4e1],
"iscrowd": 0}]}"""
_RESULTS = b'[{"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "score": 0.5}]'


def _names(path: Path) -> None:
    names.read_lines(path)
    names.read_names(path, 3, allow_longer=True)


def _data(path: Path) -> None:
    names.find_names(path)


def _tree(path: Path) -> None:
    assert sum(tree.read_tree(path, "net.cfg:1: [softmax] tree").group_sizes) > 0


def _yolo(path: Path) -> None:
    yolo_labels.read(path, _SIZE, _LABELS, [])


def _voc(path: Path) -> None:
    voc_labels.read(path, _SIZE, _LABELS, [])


def _coco(path: Path) -> None:
    truth = coco_files.read_truth(str(path), _LABELS)
    for entry in truth.entries:
        entry.objects(_SIZE)


def _results(path: Path) -> None:
    truth = path.with_name("truth.json")
    truth.write_bytes(_COCO)
    coco_files.read_results(str(path), coco_files.read_truth(str(truth), _LABELS))


def _listing(path: Path) -> None:
    truth = labelled_pictures.read(str(path), _LABELS)
    for entry in truth.entries:
        entry.objects(_SIZE)


_READERS: tuple[Callable[[Path], None], ...] = (
    *(_names, _data, _tree, _yolo, _voc, _coco, _results, _listing),
)
_EXAMPLES: dict[Callable[[Path], None], tuple[bytes, ...]] = {
    _data: (b"classes=3\nnames=net.names\ntrain = /dev/zero\n",),
    _tree: (b"a -1\nb -1\nc 0\nd 0\n",),
    _yolo: (b"0 0.5 0.5 0.25 0.25\n2 1e-3 .5 1 nan\n",),
    _voc: (_VOC, _BILLION_LAUGHS),
    _coco: (_COCO,),
    _results: (_RESULTS,),
    _listing: (b"images/a.jpg\r\n'b c.png'\n/JPEGImages/train2014/c.jpg\n",),
}


_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 10**30, 2**31, 1e308, -1e308, 0.5, float("nan"), float("inf")),
    *("", "1", "cat", "x" * 5000, "\0", "\ud800", [], [[]], {}, {"id": 1}, [1, 2, 3, 4], [0] * 3),
)
_WORD = re.compile(rb"[^\s<>,=]+")


def mutate(data: bytes, random: Random) -> bytes:
    """Replace a value in JSON, or a word elsewhere."""
    body = data[1:]
    for _ in range(random.choice((1, 1, 2, 5))):
        try:
            body = json.dumps(_with_odd_value(json.loads(body), random)).encode()
        except (ValueError, RecursionError):
            body = _with_other_word(body, random)
    return data[:1] + body


def _with_odd_value(value: Any, random: Random) -> Any:
    keys = list(value) if isinstance(value, dict) else []
    keys = list(range(len(value))) if isinstance(value, list) else keys
    if not keys or random.random() < 0.15:
        return random.choice(_ODD_VALUES)
    chosen = random.choice(keys)
    if random.random() < 0.1:
        del value[chosen]
    elif isinstance(value, list) and random.random() < 0.1:
        value.append(value[chosen])
    else:
        value[chosen] = _with_odd_value(value[chosen], random)
    return value


def _with_other_word(body: bytes, random: Random) -> bytes:
    words = list(_WORD.finditer(body))
    if not words:
        return body + b" 1"
    chosen, other = random.choice(words), random.choice(words)
    new = random.choice((other[0], str(random.choice(_ODD_VALUES)).encode("utf-8", "replace")))
    return body[: chosen.start()] + new + body[chosen.end() :]


def seeds() -> Iterator[bytes]:
    for number, reader in enumerate(_READERS):
        for example in _EXAMPLES.get(reader, ()):
            yield bytes([number]) + example
    for path in files.files("*.names", "*.data", "*.tree"):
        if path.stat().st_size < 1 << 16:
            yield (
                bytes([_READERS.index(_tree if path.suffix == ".tree" else _names)])
                + path.read_bytes()
            )


def run(data: bytes) -> None:
    reader = _READERS[data[0] % len(_READERS) if data else 0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "given.txt")
        path.write_bytes(data[1:])
        reader(path)
