"""What a layer is: its options, the layers it reads, its shape, its arrays, the ops it becomes.

A section is one file of this folder, named like the section. Its class is a frozen dataclass whose
fields are the options; `@layer(spellings...)` makes the section known, and names the options that
matter in training only, which are accepted in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from numpy.typing import NDArray

from engine.darknet import options
from engine.darknet.cfg import Option, Section
from engine.darknet.layers.net import Net
from engine.errors import ConfigError
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

Weights = Mapping[str, NDArray[Any]]

NETWORK_INPUT = -1  # the index that stands for the network's input among sources

LAYERS: dict[str, type[Layer]] = {}  # by every spelling that darknet accepts


@dataclass(frozen=True)
class Parameter:
    """One array of a layer; a layer's parameters stand in the order of the .weights file."""

    name: str
    shape: tuple[int, ...]
    initial: float = 0.0  # its value where the file does not hold it
    in_file: bool = True
    # how the file holds a matrix (rows, everything else): as it is; the other way round; or the
    # other way round only if the header says so, which concerns the weights of dense layers
    stored: Literal["plain", "flipped", "flipped_if_header_says"] = "plain"

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class Place:
    """What surrounds a layer: its number, the lines it stands on, and the [net] it belongs to."""

    index: int
    section: Section
    net: Net  # with the size and the time steps the network is really built for

    def find(self, name: str) -> Path:
        """A file that an option names: beside the .cfg, else from the working folder."""
        folder = self.section.folder
        try:
            is_beside = folder is not None and (folder / name).exists()
        except OSError:  # too long a name; whoever opens it will say so
            is_beside = False
        return folder / name if folder is not None and is_beside else Path(name)


@dataclass(frozen=True)
class Layer(ABC):
    place: Place = field(metadata=options.CONTEXT, repr=False, compare=False)
    dontload: bool = options.option(False)
    dontloadscales: bool = options.option(False)

    kind: ClassVar[str]
    training: ClassVar[frozenset[str]]
    is_detection: ClassVar[bool] = False
    is_cost: ClassVar[bool] = False  # tells training how wrong the layer before it is
    filter_axis: ClassVar[int] = 0  # of its weights
    needs_map: ClassVar[bool] = False  # cannot follow a layer whose `makes_map` is false

    # ------------------------------------------------------------ what a section defines

    def sources(self) -> tuple[int, ...]:
        """Numbers of the layers it reads, absolute; see `absolute`."""
        return (self.place.index - 1,)

    @abstractmethod
    def infer(self, *shapes: Shape) -> Shape:
        """The shape of its output; refuses shapes and options that do not fit."""

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        """Its arrays, in the order in which the .weights file holds them."""
        return ()

    @abstractmethod
    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        """Write its ops, `tensors` being its sources; return its output."""

    def padded(self, *shapes: Shape) -> Shape:
        """What its windows reach over: its input, with the cells that it adds around."""
        return shapes[0] if shapes else Shape(1)

    def makes_map(self, *shapes: Shape) -> bool:
        """Whether its output has a height and a width, or is only a row of values in darknet."""
        return True

    @property
    def donor(self) -> int | None:
        """The layer whose arrays it uses instead of its own."""
        return None

    def read_by(self, readers: Sequence[Layer]) -> Layer:
        """The same layer, knowing who reads it."""
        return self

    def operations(self, out: Shape, *shapes: Shape) -> int:
        """Multiplications and additions for one sample, counted as darknet counts them."""
        return 0

    # ------------------------------------------------------------ what every section can use

    @property
    def where(self) -> str:
        return self.place.section.where

    def at(self, key: str) -> str:
        """`file:line: [section] key`, on the line of the option where it is written."""
        section = self.place.section
        found = section.first.get(key)
        line = found.line if found else section.line
        return f"{section.file}:{line}: [{section.name}]{f' {key}' if key else ''}"

    def error(self, key: str, message: str) -> ConfigError:
        """An error in the option `key`, or in the section as a whole without one."""
        return ConfigError(f"{self.at(key)}: {message}")

    def absolute(self, key: str, index: int) -> int:
        """The layer an option points at: counted back from here if negative, else from 0."""
        here = self.place.index
        target = here + index if index < 0 else index
        if target < 0:
            raise self.error(key, f"{index} points before the first layer; this is layer {here}")
        if target >= here:
            raise self.error(
                key, f"{index} points at layer {target}, which is not before this layer, {here}"
            )
        return target


class DetectionLayer(Layer):
    """A layer whose output is boxes: its subclasses have the option `classes`."""

    is_detection: ClassVar[bool] = True
    classes: int

    @property
    def nms(self) -> tuple[str, float]:
        """The kind of suppression and its exponent."""
        return "default", 0.6


_Class = TypeVar("_Class", bound=type[Layer])

# keys that every section may hold and that matter in training only
_TRAINING = (
    "clip onlyforward dont_update burnin_update stopbackward train_only_bn learning_rate "
    "keep_delta_gpu"
)


def layer(*spellings: str, training: str = "") -> Callable[[_Class], _Class]:
    """Make a class known as the section `spellings`; `training` lists keys to accept in silence."""

    def register(cls: _Class) -> _Class:
        cls.kind = spellings[0]
        cls.training = frozenset(f"{_TRAINING} {training}".split())
        for spelling in spellings:
            assert spelling not in LAYERS, spelling
            LAYERS[spelling] = cls
        return cls

    return register


def from_section(cls: type[Layer], place: Place) -> Layer:
    """A layer with the options of its section."""
    return cls(place=place, **options.read_options(cls, place.section))


def unknown_options(cls: type[Layer] | type[Net], section: Section) -> tuple[Option, ...]:
    """Options that no reader of this section looks at."""
    known = {*options.keys(cls), *cls.training}
    return tuple(each for each in section.first.values() if each.key not in known)
