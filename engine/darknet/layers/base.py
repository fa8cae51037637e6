"""The base of all layers: options, sources, output shape, parameters and lowering to ops.

Each section has a file of its own in this folder, named after the section. Its class is a frozen
dataclass whose fields are the options. `@layer(spellings...)` registers the class and lists the
options that matter in training only, which are accepted without a warning.
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
from engine.darknet.tree import find_tree
from engine.errors import ConfigError
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

Weights = Mapping[str, NDArray[Any]]

NETWORK_INPUT = -1  # the source index of the network's input

LAYERS: dict[str, type[Layer]] = {}  # by every spelling that darknet accepts


@dataclass(frozen=True)
class Parameter:
    """One array of a layer. A layer lists them in the order of the .weights file."""

    name: str
    shape: tuple[int, ...]
    initial: float = 0.0  # the value of every element if the file does not hold the array
    in_file: bool = True
    # whether the file holds a matrix (rows, all other axes) plain or transposed; for dense layers
    # the file's header decides
    stored: Literal["plain", "flipped", "flipped_if_header_says"] = "plain"

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class LayerContext:
    """The position of a layer in its network: its index, its section and the [net] options."""

    index: int
    section: Section
    net: Net  # with the size and the time steps that the network is built for

    def find_tree(self, name: str, where: str) -> Path:
        """Return the path of the file that the option at `where` names."""
        return find_tree(name, self.section.folder, where)


@dataclass(frozen=True)
class Layer(ABC):
    context: LayerContext = field(metadata=options.NOT_AN_OPTION, repr=False, compare=False)
    dontload: bool = options.option(False)
    dontloadscales: bool = options.option(False)

    kind: ClassVar[str]
    training: ClassVar[frozenset[str]]
    is_detection: ClassVar[bool] = False
    is_cost: ClassVar[bool] = False  # a training loss
    filter_axis: ClassVar[int] = 0  # the axis of its weights that counts the filters
    needs_map: ClassVar[bool] = False  # cannot follow a layer whose `makes_map` is false

    # ------------------------------------------------------------ defined by each section

    def sources(self) -> tuple[int, ...]:
        """Return the absolute indices of the layers it reads."""
        return (self.context.index - 1,)

    @abstractmethod
    def infer(self, *shapes: Shape) -> Shape:
        """Return the shape of its output; raise ConfigError if shapes or options do not fit."""

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        """Return its parameters in the order of the .weights file."""
        return ()

    @abstractmethod
    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        """Emit its ops for the sources `tensors` and return the output."""

    def intermediates(self, *shapes: Shape) -> tuple[Shape, ...]:
        """Return the shapes of intermediate maps that may turn out empty."""
        return ()

    def padded(self, *shapes: Shape) -> Shape:
        """Return the shape of its input with padding, which counts against the limits."""
        return shapes[0] if shapes else Shape(1)

    def makes_map(self, *shapes: Shape) -> bool:
        """Whether its output is a feature map; otherwise it is a vector."""
        return True

    @property
    def donor(self) -> int | None:
        """The index of the layer whose arrays it shares, if any."""
        return None

    def with_consumers(self, consumers: Sequence[Layer]) -> Layer:
        """Adapt the layer to the layers that read its output."""
        return self

    def operations(self, out: Shape, *shapes: Shape) -> int:
        """Return the multiplications and additions for one sample, counted as in darknet."""
        return 0

    # ------------------------------------------------------------ helpers for sections

    @property
    def where(self) -> str:
        return self.context.section.where

    def at(self, key: str) -> str:
        """Return `file:line: [section] key`, with the line of the option if the file has it."""
        section = self.context.section
        found = section.first.get(key)
        line = found.line if found else section.line
        return f"{section.file}:{line}: [{section.name}]{f' {key}' if key else ''}"

    def error(self, key: str, message: str) -> ConfigError:
        """Return an error about the option `key`, or about the whole section if it is empty."""
        return ConfigError(f"{self.at(key)}: {message}")

    def absolute(self, key: str, index: int) -> int:
        """Resolve a layer index in an option: relative to this layer if negative, else absolute."""
        here = self.context.index
        target = here + index if index < 0 else index
        if target < 0:
            raise self.error(key, f"{index} points before the first layer; this is layer {here}")
        if target >= here:
            raise self.error(
                key, f"{index} points at layer {target}, which is not before this layer, {here}"
            )
        return target


class DetectionLayer(Layer):
    """A layer whose output is boxes. Subclasses have the option `classes`."""

    is_detection: ClassVar[bool] = True
    classes: int

    @property
    def nms(self) -> tuple[str, float]:
        """Return the kind of NMS and its exponent."""
        return "default", 0.6


_Class = TypeVar("_Class", bound=type[Layer])

# options that matter only in training, allowed in every section
_TRAINING = (
    "clip onlyforward dont_update burnin_update stopbackward train_only_bn learning_rate "
    "keep_delta_gpu"
)


def layer(*spellings: str, training: str = "") -> Callable[[_Class], _Class]:
    """Register a class for the section `spellings`; `training` lists training-only options."""

    def register(cls: _Class) -> _Class:
        cls.kind = spellings[0]
        cls.training = frozenset(f"{_TRAINING} {training}".split())
        for spelling in spellings:
            assert spelling not in LAYERS, spelling
            LAYERS[spelling] = cls
        return cls

    return register


def from_section(cls: type[Layer], context: LayerContext) -> Layer:
    """Create a layer with the options of its section."""
    return cls(context=context, **options.read_options(cls, context.section))


def unknown_options(cls: type[Layer] | type[Net], section: Section) -> tuple[Option, ...]:
    """Return the options that neither `cls` nor training uses."""
    known = {*options.keys(cls), *cls.training}
    return tuple(each for each in section.first.values() if each.key not in known)
