"""load(): from a .cfg and a .weights file to a Detector.

A GPU takes as long to wake up as Python takes to import what runs a network, and neither keeps the
other waiting: this file imports next to nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from reprlib import repr as brief
from types import NoneType
from typing import TYPE_CHECKING, TypeAlias

from engine.arguments import check_kind, is_whole
from engine.errors import InputError, within_memory

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from engine.darknet.graph import Graph
    from engine.detector import Detector
    from engine.models.store import ModelFiles
    from engine.plan.build import Plan

Size: TypeAlias = "int | tuple[int, int]"  # of both sides, or width and height


@within_memory("load")
def load(
    cfg: str | Path | None = None,
    weights: str | Path | None = None,
    names: str | Path | Sequence[str] | Mapping[int, str] | None = None,
    *,
    data: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    precision: str = "float32",
    batch: int = 1,
    size: Size | None = None,
    resize: str = "cfg",
    orient: bool = True,
    threshold: float = 0.25,
    nms: float = 0.45,
    hierarchy: float = 0.5,
    classes: Collection[str | int] | None = None,
    exclude: Collection[str | int] | None = None,
    max_detections: int | None = None,
    agnostic_nms: bool = False,
    top_k: int = 5,
    passes: bool = True,
) -> Detector:
    """A detector, or a classifier: the network tells.

    cfg        a .cfg file; without `weights` the name of a network of the zoo, like "yolov4-tiny",
               whose weights are downloaded when they are used first; without both the model in
               the box, which finds machine-readable codes
    names      a .names file, or a list of the names, or a dict that has them by number; `data` is
               a .data file that says where it is
    device     "auto" (a usable GPU, else the CPU), "cpu", "cuda", "cuda:1"; `threads` for the CPU
    batch      how many pictures run at once at most; a longer list runs in several goes
    size       of the network's input instead of the .cfg's
    resize     "cfg" (what the .cfg asks for), "stretch", "letterbox", "exact" (as "cfg", with the
               fault of darknet's own resize)
    orient     apply the EXIF orientation; boxes refer to the upright picture
    threshold  boxes of a lower score are dropped; `hierarchy` is the same inside a class tree
    nms        boxes of one class that overlap more are suppressed
    classes    the only ones that are looked for, by name or number; `exclude`: all but these
    max_detections  how many of a picture's boxes are kept at most, the best ones
    agnostic_nms    boxes suppress those of other classes, too
    top_k      how many classes a classifier names
    passes     False runs the network op by op as its .cfg says
    """
    from engine.backends import open_in_background, warm_up
    from engine.settings import Settings

    for name, path in (("cfg", cfg), ("weights", weights), ("data", data)):
        check_kind(name, path, (str, PathLike, NoneType), "a file's name")
    check_kind("device", device, str, "a name such as 'cpu'")
    check_kind("precision", precision, str, "a name such as 'float32'")
    Settings(threshold, nms, hierarchy, top_k, batch, max_detections)  # before the files are read
    with warm_up(device):
        if cfg is None or weights is None:
            found = _located(cfg, weights)
            cfg, weights = found.cfg, found.weights
            names = found.names if names is None and data is None else names
        with open_in_background(device, threads) as opening:
            from engine.darknet import cfg as darknet_cfg
            from engine.darknet import graph as darknet_graph
            from engine.darknet import weights as darknet_weights
            from engine.darknet.lower import lower
            from engine.detector import Detector
            from engine.inputs import Intake
            from engine.passes import optimise

            network = darknet_graph.build(darknet_cfg.read(cfg), size=_sides(size))
            labels = _labels(names, data, network)
            settings = Settings(
                *(threshold, nms, hierarchy, top_k, batch, max_detections),
                classes=_chosen_classes(classes, exclude, labels),
            )
            intake = Intake.of(network, resize, orient=orient)

            def read_plan() -> Plan:
                return lower(network, darknet_weights.load(weights, network))

            plan = read_plan()
            expected = opening.passes() if passes else ()
            ready = optimise(plan, expected)
            machine = opening.result()
            wanted = machine.passes if passes else ()
            if wanted != expected:
                ready = optimise(plan, wanted)
            return Detector(
                *(network, ready, read_plan, machine, settings),
                labels=labels,
                intake=intake,
                agnostic_nms=agnostic_nms,
                precision=precision,
                passes=wanted,
            )


def _located(name: str | Path | None, weights: str | Path | None) -> ModelFiles:
    from pathlib import Path

    from engine.files.naming import shown
    from engine.models.store import locate, locate_default  # only for those without files

    if name is None:
        if weights is not None:
            raise InputError(f"{shown(weights)}: expected its .cfg, too, got none")
        return locate_default()
    if Path(name).suffix == ".cfg":
        raise InputError(f"{shown(name)}: expected its weights, too, got none")
    return locate(str(name))


def _sides(size: Size | None) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = tuple(size) if isinstance(size, Iterable) else (size, size)
    if len(sides) != 2 or not all(map(is_whole, sides)):
        raise InputError(f"size: expected a whole number, or width and height, got {brief(size)}")
    return int(sides[0]), int(sides[1])


def _labels(
    names: str | Path | Sequence[str] | Mapping[int, str] | None,
    data: str | Path | None,
    network: Graph,
) -> tuple[str, ...]:
    import numpy as np

    from engine.darknet.names import default_names, find_names, read_names

    classes = network.classes
    if names is None and data is not None:
        names = find_names(data)
    if names is None:
        return default_names(classes)
    if isinstance(names, (str, PathLike)):
        return read_names(names, classes, allow_longer=network.task == "classifier")
    if isinstance(names, np.ndarray):
        names = names.tolist()
    elif isinstance(names, Mapping) and set(names) == set(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, Sequence):
        raise InputError(
            f"names: expected a list, or a dict with the keys 0, 1, …, got {brief(names)}"
        )
    if len(names) != classes:
        raise InputError(f"names: expected {classes}, one for each class, got {len(names)}")
    for each in names:
        check_kind("names", each, str, "text for each class")
    return tuple(names)


def _chosen_classes(
    classes: Collection[str | int] | None,
    exclude: Collection[str | int] | None,
    labels: Sequence[str],
) -> tuple[int, ...] | None:
    from engine.vision.classes import class_ids_of

    unwanted = set(class_ids_of(exclude, labels))
    if classes is None and not unwanted:
        return None
    every = range(len(labels))
    wanted = set(every if classes is None else class_ids_of(classes, labels))
    for number in sorted((wanted | unwanted) - set(every)):
        raise InputError(f"classes: expected a number below {len(labels)}, got {number}")
    return tuple(sorted(wanted - unwanted))
