"""Read and write COCO's JSON files: ground truth (instances) and detections (results)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeGuard

from engine.errors import InputError, suggest
from engine.evaluate.examples import Detections, Example, Objects
from engine.evaluate.ground_truth import Entry, GroundTruth
from engine.evaluate.text_files import JSON_LIMIT, read_text
from engine.files.atomic import write_new
from engine.files.naming import escaped_bytes, shown, unescaped_bytes
from engine.vision.serialize import COCO_CATEGORIES

ImageId = int | str

_MAX_NUMBER = 1e60  # larger values are refused, so that areas stay finite
_MAX_LISTED = 20  # maximum number of unknown categories in a message
_MAX_PAIRS = 3  # maximum number of category/class pairs in a message
_CLASS = re.compile(r"class\s*(\d{1,9})", re.ASCII | re.IGNORECASE)


def read_truth(
    source: str,
    names: Sequence[str] | None = None,
    *,
    pictures: str | None = None,
    needs_objects: bool = True,
) -> GroundTruth:
    """Read the pictures and objects of an instances file for a network with the classes `names`.

    Categories are mapped to classes by name, or else by the order of their ids if there are as
    many. Two of one name are refused, unless the file has the names of the classes in their order.
    The pictures are in the folder `pictures`, by default the folder of the file. Unless
    `needs_objects`, the file may lack annotations, as COCO's test sets do.
    """
    file = _JsonFile(source)
    listed = file.list("categories")
    by_id = {file.integer(each, "id"): each for each in listed}
    if len(by_id) != len(listed):
        raise InputError(f"{file.name}: categories: two have the same id")
    categories = dict(sorted(by_id.items()))
    category_names = [str(each.get("name", number)) for number, each in categories.items()]
    names = tuple(category_names if names is None else names)
    class_of = dict(zip(categories, _match_names(file.name, category_names, names), strict=True))
    problems: list[str] = []
    objects = _objects(file, class_of, problems) if needs_objects else {}
    folder = Path(source).parent if pictures is None else Path(pictures)
    images = sorted(file.list("images"), key=lambda image: _sort_key(_image_id(file, image)))
    entries = [
        _entry(file, image, folder, objects.get(_image_id(file, image), _Rows()))
        for image in images
    ]
    if len({entry.image_id for entry in entries}) != len(entries):
        raise InputError(f"{file.name}: images: two have the same id")
    if not entries:
        raise InputError(f"{file.name}: names no picture")
    numbers = {class_id: number for number, class_id in class_of.items()}
    free = 1 + max(numbers.values(), default=0)
    return GroundTruth(
        *(source, names, tuple(numbers.get(i, free + i) for i in range(len(names)))),
        *(tuple(entries), problems),
        remarks=[
            *_repeated(file.name, entries),
            *matched_in_order(file.name, category_names, names),
            *(_found_by_a_network(file) if needs_objects else ()),
        ],
        without_category=frozenset(range(len(names))) - set(numbers),
    )


def read_results(source: str, truth: GroundTruth) -> dict[ImageId, Detections]:
    """Read the detections of each picture of `truth`, in the order of the file.

    Detections of unknown categories are skipped, as in pycocotools, with a remark in `truth`. If
    there are no other detections, they are an error.
    """
    file = _JsonFile(source, is_list=True)
    known = {entry.image_id for entry in truth.entries}
    class_of = {number: class_id for class_id, number in enumerate(truth.categories)}
    if _count_from_one(file.value, truth):
        class_of = {1 + class_id: class_id for class_id in range(len(truth.names))}
        what = "category_ids count from 1 to 80 without COCO's gaps, and are read that way"
        truth.remarks.append(f"{file.name}: {what}")
    rows: dict[ImageId, _Rows] = {}
    counts: Counter[int] = Counter()
    for index, each in enumerate(file.value):
        where = f"{file.name}: detection {index}"
        if not isinstance(each, dict):
            raise InputError(f"{where}: expected an object, got {type(each).__name__}")
        image_id, score = each.get("image_id"), each.get("score")
        if not isinstance(image_id, (int, str)) or image_id not in known:
            raise InputError(
                f"{where}: image_id: {_quoted(image_id)} is not in {shown(truth.source)}"
            )
        if not _is_number(score):
            raise InputError(f"{where}: score: expected a number, got {_quoted(score)}")
        category = file.integer(each, "category_id")
        counts[category] += 1
        class_id = class_of.get(category)
        if class_id is not None:
            rows.setdefault(image_id, _Rows()).add(_bbox(each, where), class_id, extra=score)
    _report_unknown_categories(file.name, counts, {*class_of}, truth)
    return {
        key: Detections.of(each.boxes, each.extras, each.class_ids) for key, each in rows.items()
    }


def _count_from_one(detections: Iterable[Any], truth: GroundTruth) -> bool:
    """Return whether COCO's classes have the ids that detect gives to a network without names."""
    if Path(truth.source).suffix.lower() == ".json" or truth.categories != COCO_CATEGORIES:
        return False
    values = [each.get("category_id") for each in detections if isinstance(each, dict)]
    ids = {each for each in values if isinstance(each, int)}
    in_gaps = ids - {*COCO_CATEGORIES}
    return bool(in_gaps) and ids <= {*range(1, 1 + len(COCO_CATEGORIES))}


def files_in(folder: Path) -> tuple[Path, Path]:
    """Return the files that write() creates: the ground truth and the detections."""
    return folder / "ground_truth.json", folder / "detections.json"


def write(
    folder: Path, truth: GroundTruth, examples: Sequence[Example], *, overwrite: bool = False
) -> tuple[Path, Path]:
    """Write ground_truth.json and detections.json for pycocotools; return their paths."""
    annotations = [
        {
            "id": number,
            "image_id": example.image_id,
            "category_id": truth.categories[class_id],
            "bbox": box,
            "area": area,
            "iscrowd": int(optional),
        }
        for number, (example, box, class_id, area, optional) in enumerate(_annotated(examples), 1)
    ]
    instances = {
        "images": [
            {
                "id": each.image_id,
                "file_name": escaped_bytes(str(each.path)),
                "width": each.size[0],
                "height": each.size[1],
            }
            for each in examples
        ],
        "categories": [
            {"id": number, "name": name}
            for number, name in zip(truth.categories, truth.names, strict=True)
        ],
        "annotations": annotations,
    }
    results = [
        {
            "image_id": example.image_id,
            "category_id": truth.categories[class_id],
            "bbox": box,
            "score": score,
        }
        for example in examples
        for box, class_id, score in zip(
            example.detections.boxes.tolist(),
            example.detections.class_ids.tolist(),
            example.detections.scores.tolist(),
            strict=True,
        )
    ]
    paths = files_in(folder)
    for path, value in zip(paths, (instances, results), strict=True):
        write_new(path, f"{json.dumps(value, allow_nan=False)}\n".encode(), overwrite=overwrite)
    return paths


class _JsonFile:
    """A parsed JSON file, with accessors that raise errors about it."""

    def __init__(self, source: str, *, is_list: bool = False) -> None:
        self.name = shown(source)
        try:
            self.value = json.loads(read_text(Path(source), limit=JSON_LIMIT))
        except json.JSONDecodeError as error:
            raise InputError(f"{self.name}:{error.lineno}: is not JSON: {error.msg}") from None
        except (RecursionError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.name}: cannot be read as JSON: {error}") from None
        if not isinstance(self.value, list if is_list else dict):
            kind = "a list of detections" if is_list else "images, annotations and categories"
            raise InputError(f"{self.name}: expected {kind}, got {type(self.value).__name__}")

    def list(self, key: str) -> list[dict[str, Any]]:
        value = self.value.get(key)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise InputError(f"{self.name}: {key}: expected a list of objects")
        return value

    def integer(self, entry: Mapping[str, Any], key: str) -> int:
        value = entry.get(key)
        if not isinstance(value, int):
            raise InputError(f"{self.name}: {key}: expected an integer, got {_quoted(value)}")
        return value


def _quoted(value: object) -> str:
    """Return a value of JSON for a message: numbers as they are, everything else in quotes."""
    text = str(value)[:60]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return text if is_number else repr(text)


class _Rows:
    """The boxes of one picture, collected one by one."""

    def __init__(self) -> None:
        self.boxes: list[list[float]] = []
        self.class_ids: list[int] = []
        self.extras: list[float] = []  # areas of objects, scores of detections
        self.crowd: list[bool] = []

    def add(self, box: list[float], class_id: int, *, extra: float, crowd: bool = False) -> None:
        self.boxes.append(box)
        self.class_ids.append(class_id)
        self.extras.append(extra)
        self.crowd.append(crowd)


def _objects(
    file: _JsonFile, class_of: Mapping[int, int], problems: list[str]
) -> dict[ImageId, _Rows]:
    known = {_image_id(file, image) for image in file.list("images")}
    rows: dict[ImageId, _Rows] = {}
    for index, each in enumerate(file.list("annotations")):
        where = f"{file.name}: annotation {shown(str(each.get('id', index)))}"
        image_id = each.get("image_id")
        try:
            if not isinstance(image_id, (int, str)) or image_id not in known:
                raise InputError(f"{where}: image_id: no image has the id {_quoted(image_id)}")
            class_id = class_of.get(file.integer(each, "category_id"))
            if class_id is None:
                raise InputError(
                    f"{where}: category_id: no category has the id {each['category_id']}"
                )
            box = _bbox(each, where)
            area = each.get("area", box[2] * box[3])
            if not _is_number(area):
                raise InputError(f"{where}: area: expected a number, got {_quoted(area)}")
        except InputError as error:
            problems.append(str(error))
            continue
        crowd = bool(each.get("iscrowd", 0))
        rows.setdefault(image_id, _Rows()).add(box, class_id, extra=area, crowd=crowd)
    return rows


def _repeated(where: str, entries: Iterable[Entry]) -> Iterable[str]:
    """Yield a warning about pictures that have several ids."""
    ids: dict[str, list[ImageId]] = {}
    for each in entries:
        ids.setdefault(each.path, []).append(each.image_id)
    several = {path: each for path, each in ids.items() if len(each) > 1}
    if several:
        path, numbers = next(iter(several.items()))
        example = f"{shown(path)} for the ids {numbers[0]} and {numbers[1]}"
        yield f"{where}: images of one file_name: {len(several)}, such as {example}"


def _found_by_a_network(file: _JsonFile) -> Iterable[str]:
    """Yield a warning if most annotations have a score, which annotators do not assign."""
    annotations = file.list("annotations")
    count = sum("score" in each for each in annotations)
    if 2 * count > len(annotations):
        what = f"{count} of {len(annotations)} annotations have a score, as detect writes them"
        hint = "Unless you corrected them, a network is measured by its own results"
        yield f"{file.name}: {what}. {hint}"


def _report_unknown_categories(
    where: str, counts: Counter[int], categories: Set[int], truth: GroundTruth
) -> None:
    """Add a remark about the category_ids that the ground truth lacks; raise if it has none.

    Known ids may mean other classes there, too; only the unknown ones reveal it.
    """
    without = {truth.categories[class_id] for class_id in truth.without_category}
    known = categories - without
    unknown = sorted(counts.keys() - known)
    if not unknown:
        return
    source = shown(truth.source)
    which = f"{sum(counts[each] for each in unknown)} of {counts.total()} detections"
    ids = ", ".join(map(str, unknown[:_MAX_LISTED])) + ", …" * (len(unknown) > _MAX_LISTED)
    has = f"It has {len(known)}, from {min(known)} to {max(known)}"
    message = f"{where}: {which} have category_ids that {source} lacks: {ids}. {has}"
    if 0 in unknown:
        hint = "Are they counted from 0?"
    elif Path(truth.source).suffix.lower() == ".json":
        hint = f"Are they of another file? detect --images-json {source} writes the ids of this one"
    else:
        hint = "Are they of a COCO file? Name it in place of the pictures"
    if len(unknown) == len(counts):
        raise InputError(f"{message}. {hint}")
    truth.remarks.append(
        f"{message}. These count for no AP, and the others may have wrong classes. {hint}"
    )


def _entry(file: _JsonFile, image: Mapping[str, Any], folder: Path, rows: _Rows) -> Entry:
    name = image.get("file_name")
    image_id = _image_id(file, image)
    if not isinstance(name, str) or not name or "\0" in name:
        raise InputError(f"{file.name}: image {shown(str(image_id))}: file_name: expected a name")
    width, height = image.get("width"), image.get("height")
    size = None
    if _is_number(width) and _is_number(height) and width >= 1 and height >= 1:
        size = int(width), int(height)
    objects = Objects.of(rows.boxes, rows.class_ids, areas=rows.extras, optional=rows.crowd)
    other = folder / unescaped_bytes(name)  # detect --coco-dataset escapes names
    path = other if other != folder / name and other.exists() else folder / name
    return Entry(image_id, str(path), lambda size: objects, size)


def _image_id(file: _JsonFile, image: Mapping[str, Any]) -> ImageId:
    value = image.get("id")
    if not isinstance(value, (int, str)):
        raise InputError(f"{file.name}: images: id: expected an integer, got {_quoted(value)}")
    return value


def _sort_key(image_id: ImageId) -> tuple[bool, ImageId]:
    return isinstance(image_id, str), image_id


def _bbox(entry: Mapping[str, Any], where: str) -> list[float]:
    box = entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise InputError(f"{where}: bbox: expected left, top, width, height")
    if box[2] < 0 or box[3] < 0:
        raise InputError(f"{where}: bbox: has no area: {box[2]:g} x {box[3]:g}")
    return box


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= _MAX_NUMBER  # false for NaN


def _match_names(where: str, categories: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the class of each category."""
    if not categories:
        raise InputError(f"{where}: categories: expected at least one, got none")
    if list(categories) == list(names):  # as detect writes them, even if two are alike
        return list(range(len(names)))
    class_of = {_normalised(name): class_id for class_id, name in reversed(list(enumerate(names)))}
    same = [class_of.get(_normalised(name)) for name in categories]
    known = [class_id for class_id in same if class_id is not None]
    if len(known) == len(categories) == len(set(known)):
        return known
    twice = [name for name, count in Counter(map(_normalised, categories)).items() if count > 1]
    if twice:
        problem = (
            f"two are called {twice[0][:60]!r}, and the classes have other names or another order"
        )
        raise InputError(f"{where}: categories: {problem}. See --names")
    if len(categories) != len(names):
        missing = categories[same.index(None)] if None in same else categories[0]
        hint = suggest(missing, names)
        raise InputError(
            f"{where}: has {len(categories)} categories, the network {len(names)} classes, none of"
            f" which is called {missing[:60]!r}.{hint} See --names"
        )
    first = _first_number(categories)
    if first is not None:
        return [number - first for number in class_numbers(categories)]
    for index, class_id in enumerate(same):
        if class_id not in (None, index):
            raise InputError(
                f"{where}: categories: {categories[index][:60]!r} is number {index} in order, but"
                f" number {class_id} of the network's classes. See --names"
            )
    return list(range(len(names)))


def matched_in_order(where: str, categories: Sequence[str], names: Sequence[str]) -> Iterable[str]:
    """Yield a warning if categories matched by order have other names than their classes."""
    if {*map(_normalised, categories)} <= {*map(_normalised, names)}:
        return  # matched by name
    first = _first_number(categories)
    if first is not None:  # matched by number
        if first:
            what = f"categories class 1 to class {len(categories)} count from 1, so class 1 is the"
            yield f"{where}: {what} first class of the network, {shown(names[0])}"
        return
    rows = list(enumerate(zip(categories, names, strict=True)))
    if not any(map(is_name, names)) and any(map(is_name, categories)):
        pairs = [f"{shown(name)} = {shown(category)}" for _, (category, name) in rows]
        what = "the network's classes have no names, and count as the categories in their order"
    else:
        pairs = [
            f"{shown(category)} = {shown(name)}"
            for index, (category, name) in rows
            if not (_is_only(category, index) or _is_only(name, index))
            and _normalised(category) != _normalised(name)
        ]
        count = f"{len(pairs)} of {len(categories)} categories"
        what = f"{count} have the number of a class with another name, and count as that"
    if pairs:
        which = ", ".join(pairs[:_MAX_PAIRS]) + ", …" * (len(pairs) > _MAX_PAIRS)
        yield f"{where}: {what}: {which}. See --names"


def _is_only(text: str, index: int) -> bool:
    """Return whether a text is not a name and contains no number other than the index."""
    return not is_name(text) and class_numbers([text]) in ([], [index])


def _first_number(categories: Sequence[str]) -> int | None:
    """Return 0 or 1 if the categories are "class N" with N counting from there, in any order."""
    numbers = {*class_numbers(categories)}
    count = len(categories)
    return next((first for first in (0, 1) if numbers == {*range(first, first + count)}), None)


def class_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers in names like "class 3", which detect gives to networks without names."""
    found = (_CLASS.fullmatch(each.strip()) for each in names)
    return [int(each[1]) for each in found if each]


def is_name(text: str) -> bool:
    """Return whether a text is a real name, unlike "3", "class 3" and ""."""
    rest = _normalised(text).removeprefix("class")
    return bool(rest) and not rest.isdecimal()


def _normalised(name: str) -> str:
    return "".join(name.split()).lower()


def _annotated(
    examples: Sequence[Example],
) -> Iterable[tuple[Example, list[float], int, float, bool]]:
    for example in examples:
        objects = example.objects
        yield from (
            (example, *row)
            for row in zip(
                objects.boxes.tolist(),
                objects.class_ids.tolist(),
                objects.areas.tolist(),
                objects.optional.tolist(),
                strict=True,
            )
        )
