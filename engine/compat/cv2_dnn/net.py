"""Net: a darknet network with the methods of cv2.dnn.Net; readNet() and readNetFromDarknet()."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from operator import index
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np

from engine.arrays import Array, Floats
from engine.backends import open_chosen
from engine.backends.base import Device, Program, TimedProgram
from engine.compat.cv2_dnn import constants, files
from engine.compat.cv2_dnn.blob import Scalar, array_of, scalar
from engine.compat.cv2_dnn.files import DARKNET_EPSILON, Content
from engine.compat.cv2_dnn.layers import CvLayer, layers_of, unconnected
from engine.compat.cv2_dnn.old_and_new import Items
from engine.compat.cv2_dnn.rows import rows_of
from engine.compat.cv2_dnn.shapes import (
    KEEP_SHAPE,
    Shapes,
    as_arrays,
    of_input,
    operations_of,
    shapes_of,
)
from engine.concurrency import fork_safety
from engine.darknet.cfg import Section
from engine.darknet.graph import Graph
from engine.darknet.layers.base import NETWORK_INPUT, Weights
from engine.darknet.lower import lower
from engine.errors import DeviceError, InputError, suggest, within_memory
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Tensor

Names: TypeAlias = list[str] | tuple[str, ...]

_log = logging.getLogger("engine")

_INPUT = "data"  # OpenCV's name for the input of a darknet network
_INPUT_TYPE = "__NetInputLayer__"
_MAX_PROGRAMS = 4  # kept; each is compiled for a size, a batch and a set of outputs

_DEVICES = {
    constants.DNN_TARGET_CUDA: ("cuda:0", "float32"),
    constants.DNN_TARGET_CUDA_FP16: ("cuda:0", "float16"),
}


class _NameAndType(NamedTuple):
    name: str
    type: str


class Layer(_NameAndType):
    """The result of getLayer()."""

    __slots__ = ()

    def outputNameToIndex(self, outputName: str) -> int:
        """Return 0 for the layer's name, else -1; samples look for a second input this way."""
        return 0 if outputName in ("", self.name) else -1

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the module whose Layer lacks a member of OpenCV's."""
            raise AttributeError(f"{name}: Layer of engine.compat.cv2_dnn has no such attribute")


class _Compiled(NamedTuple):
    """A program, with the place of each wanted tensor among its outputs."""

    graph: Graph
    program: Program
    places: tuple[int, ...]


class Net:
    """A darknet network with the methods of cv2.dnn.Net.

    It takes blobs of any size that the network can be built for, and any number of pictures. The
    first forward() with a new size, batch or set of outputs compiles the network.
    """

    def __init__(
        self,
        sections: Sequence[Section] = (),
        weights: Content = "",
        /,
        *,
        epsilon: float = DARKNET_EPSILON,
    ) -> None:
        self._sections = tuple(sections)
        self._graph = files.build(self._sections) if sections else None
        self._weights: tuple[Weights, ...] = ()
        self._lacks_weights = False
        self._layers: tuple[CvLayer, ...] = ()
        if self._graph is not None:
            self._weights = files.read_weights(weights, self._graph, epsilon)
            self._lacks_weights = any(self._weights) and files.is_nothing(weights)
            self._layers = layers_of(self._graph)
        self._by_name = {each.name: each for each in self._layers}
        self._lock = fork_safety.lock(outer=True)
        self._target = constants.DNN_TARGET_CPU
        self._device: Device | None = None
        self._programs: OrderedDict[object, _Compiled] = OrderedDict()
        self._input_name = _INPUT
        self._blob: Array | None = None
        self._ticks = 0
        self._latest: tuple[object, Array] | None = None  # program and input of the last forward()
        self._shares: Array | None = None  # each layer's share of the run time

    @classmethod
    def of_darknet(cls, config: Content, weights: Content, *, epsilon: float) -> Net:
        """Read a network; see readNetFromDarknet()."""
        config, weights = files.in_order(config, weights)
        if isinstance(config, str) and not config:
            raise InputError("readNetFromDarknet: expected a .cfg, got ''")
        return cls(files.read_sections(config), weights, epsilon=epsilon)

    @classmethod
    def of_files(
        cls, model: Content, config: Content, framework: Content, *, epsilon: float
    ) -> Net:
        """Read a network; see readNet()."""
        if isinstance(model, str) and files.is_buffer(config):
            if model.lower() != "darknet":
                raise InputError(f"readNet: framework: expected 'darknet', got {model!r}")
            return cls.of_darknet(framework, config, epsilon=epsilon)
        if not files.is_darknet(model, config, framework=str(framework)):
            raise InputError(
                f"readNet: expected a .cfg and a .weights file, got {model!r} and {config!r}"
            )
        config, weights = files.in_order(config, model)
        if not files.is_buffer(config) and not str(config):
            named = "a buffer" if files.is_buffer(weights) else repr(weights)
            raise InputError(f"readNet: expected the .cfg of {named}, too")
        return cls(files.read_sections(config), weights, epsilon=epsilon)

    def __repr__(self) -> str:
        return f"<Net: {self._graph.file if self._graph else 'empty'}>"

    # ------------------------------------------------------------ layers

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in the .cfg."""
        net = self._network.net
        return net.width, net.height

    def empty(self) -> bool:
        return self._graph is None

    def getLayerNames(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._layers)

    def getLayerId(self, layer: str) -> int:
        """Return the number of a layer, counted from 1, or -1 for an unknown name."""
        if layer in ("", _INPUT, "_input"):
            return 0
        names = self.getLayerNames()
        return names.index(layer) + 1 if layer in names else -1

    def getLayer(self, layer: int | str) -> Layer:
        number = self.getLayerId(layer) if isinstance(layer, str) else int(layer)
        if number == 0:
            return Layer("_input", "")  # as in OpenCV, only getLayerTypes() has the type
        if not 0 < number <= len(self._layers):
            raise InputError(f"layer: expected 0 to {len(self._layers)} or a name, got {layer!r}")
        found = self._layers[number - 1]
        return Layer(found.name, found.type)

    def getLayerTypes(self) -> tuple[str, ...]:
        return tuple(sorted({_INPUT_TYPE, *(each.type for each in self._layers)}))

    def getLayersCount(self, layerType: str) -> int:
        inputs = int(layerType == _INPUT_TYPE)
        return inputs + sum(each.type == layerType for each in self._layers)

    def getUnconnectedOutLayers(self) -> Items:
        """Return the numbers of the output layers; each item `i` also works as `i[0]`."""
        if self._graph is None:
            return Items.of((), np.int32)
        return Items.of([1 + each for each in unconnected(self._graph, self._layers)], np.int32)

    def getUnconnectedOutLayersNames(self) -> tuple[str, ...]:
        return tuple(self._layers[number - 1].name for number in self.getUnconnectedOutLayers())

    def detects(self, names: Sequence[str]) -> bool:
        """Return whether one of these is a detection layer, whose output is not only scores."""
        nodes = (self._network.nodes[self._layer(name).node] for name in names)
        return any(node.layer.is_detection for node in nodes)

    def getLayersShapes(
        self, netInputShapes: Any = None, *, netInputShape: Any = None
    ) -> tuple[Array, Shapes, Shapes]:
        """Return ids, input shapes and output shapes of all layers for an input shape."""
        given = netInputShape if netInputShapes is None else netInputShapes
        graph, count = self._for_shape(given)
        source = ((count, *graph.net.shape.sides),)
        layers = list(shapes_of(graph, self._layers, count))
        inputs = as_arrays([source, *(each.inputs for each in layers)])
        outputs = as_arrays([source, *((each.output,) for each in layers)])
        return np.arange(len(inputs), dtype=np.int32), inputs, outputs

    def getFLOPS(
        self,
        layerId: Any = None,
        netInputShapes: Any = None,
        *,
        netInputShape: Any = None,
    ) -> int:
        """Return the operations of one or all layers for an input shape, as OpenCV counts them.

        A shape may be the only argument: getFLOPS((1, 3, 416, 416)).
        """
        given = netInputShape if netInputShapes is None else netInputShapes
        if given is None:
            layerId, given = None, layerId
        graph, count = self._for_shape(given)
        shapes = list(shapes_of(graph, self._layers, count))
        if layerId is not None:
            number = index(layerId)
            self.getLayer(number)
            shapes = shapes[number - 1 : number] if number else []
        return sum(operations_of(graph, each) for each in shapes)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the module whose Net lacks a method of OpenCV's."""
            raise AttributeError(f"{name}: Net of engine.compat.cv2_dnn has no such attribute")

    # ------------------------------------------------------------ where to run

    def setPreferableBackend(self, backendId: int) -> None:
        """Do nothing: only the target matters."""

    def setPreferableTarget(self, targetId: int) -> None:
        """Run on a GPU for DNN_TARGET_CUDA, in half precision for _CUDA_FP16; otherwise on the CPU.

        Without a usable GPU a warning is logged and the CPU runs the network, as in OpenCV.
        """
        with self._lock:
            if targetId != self._target:
                self._target = targetId
                self._close()

    def enableFusion(self, fusion: bool) -> None:
        """Do nothing: despite fusion, any output can be returned."""

    def enableWinograd(self, useWinograd: bool) -> None:
        """Do nothing: algorithms are chosen for each layer."""

    # ------------------------------------------------------------ running

    def setInputsNames(self, inputBlobNames: Sequence[str]) -> None:
        """Rename the input for setInput(); the default is "data"."""
        names = [inputBlobNames] if isinstance(inputBlobNames, str) else list(inputBlobNames)
        if len(names) != 1:
            raise InputError(f"setInputsNames: expected one name, got {len(names)}")
        self._input_name = str(names[0])

    def setInputShape(self, inputName: str, shape: Sequence[int]) -> None:
        """Check name and shape; as in OpenCV, the blob of setInput() determines the shape."""
        self._check_name("setInputShape", inputName)
        self._for_shape(shape)

    def setInput(
        self, blob: Any, name: str = "", scalefactor: float = 1.0, mean: Scalar = None
    ) -> None:
        """Set the input to (blob - mean) * scalefactor, with one mean per channel."""
        self._check_name("setInput", name)
        values = array_of(blob)
        shape = self._network.net.shape
        if values.ndim == 2 and values.shape[1] == shape.size:
            values = values.reshape(-1, *shape.sides)
        if values.ndim != 4 or values.dtype.kind not in "fu" or not values.size:
            raise InputError(
                "setInput: blob: expected float32 (pictures, channels, height, width), "
                f"got {values.dtype} {values.shape}. Make one with blobFromImage()"
            )
        if values.shape[1] != shape.channels:
            raise InputError(
                f"setInput: blob: expected {shape.channels} channels, got {values.shape[1]}"
            )
        made = values.astype(np.float32)
        means = scalar(mean, shape.channels)
        if means.any():
            made -= means[:, None, None]
        if scalefactor != 1:
            made *= np.float32(scalefactor)
        self._blob = made

    @overload
    def forward(self, outputName: str | None = None) -> Floats: ...

    @overload
    def forward(self, outputName: Names) -> tuple[Floats, ...]: ...

    @overload
    def forward(self, *, outBlobNames: Names) -> tuple[Floats, ...]: ...

    @overload
    def forward(
        self, outputName: list[Names] | tuple[Names, ...]
    ) -> tuple[tuple[Floats, ...], ...]: ...

    def forward(self, outputName: Any = None, *, outBlobNames: Any = None) -> Any:
        """Run the network; return the output of a layer, or of each layer in a (nested) list.

        The default is the last layer. `outBlobNames` is OpenCV's keyword for a list.
        """
        outputName = outBlobNames if outputName is None else outputName
        if outputName is None or isinstance(outputName, str):
            return self._run([outputName or self._last])[0]
        groups = list(outputName)
        if all(isinstance(each, str) for each in groups):
            return tuple(self._run(groups))
        flat = [[each] if isinstance(each, str) else list(each) for each in groups]
        arrays = iter(self._run([name for group in flat for name in group]))
        return tuple(tuple(next(arrays) for _ in group) for group in flat)

    def forwardAndRetrieve(self, outBlobNames: Sequence[str]) -> tuple[tuple[Array, ...], ...]:
        """Return a tuple of arrays for each name."""
        return self.forward([[each] for each in outBlobNames])

    def getPerfProfile(self) -> tuple[int, Array]:
        """Return the ticks of the last forward(), in total and for each layer.

        A tick is a nanosecond, as in OpenCV on Linux, where cv2.getTickFrequency() is 1e9. The
        layers' shares are measured once for each size; a fused layer takes no time of its own.
        """
        with self._lock:
            if self._latest is None:
                return 0, np.zeros(len(self._layers))
            if self._shares is None:
                key, blob = self._latest
                self._shares = self._measured_shares(self._programs[key], blob)
            return self._ticks, self._shares * self._ticks

    def close(self) -> None:
        """Release the device; the next forward() opens it again."""
        with self._lock:
            self._close()

    # ------------------------------------------------------------ internals

    @property
    def _network(self) -> Graph:
        if self._graph is None:
            raise InputError("Net: expected a network, got an empty one. Use readNetFromDarknet()")
        return self._graph

    def _check_name(self, function: str, name: str) -> None:
        if name not in ("", self._input_name):
            raise InputError(f"{function}: name: expected '' or {self._input_name!r}, got {name!r}")

    def _for_shape(self, given: Any) -> tuple[Graph, int]:
        """Return network and batch size for an input shape, which may be in a list of one."""
        channels = self._network.net.shape.channels
        count, height, width = of_input(given, channels)
        return self._sized(width, height), count

    def _sized(self, width: int, height: int) -> Graph:
        graph = self._network
        if (width, height) == (graph.net.width, graph.net.height):
            return graph
        return files.build(self._sections, (width, height))

    @property
    def _last(self) -> str:
        return self._layers[-1].name if self._layers else ""

    def _run(self, names: Sequence[str]) -> list[Array]:
        layers = [self._layer(name) for name in names]
        blob = self._blob
        if blob is None:
            raise InputError("forward: expected an input. Call setInput() first")
        if self._lacks_weights:
            raise InputError(
                f"forward: {self._network.file} was read without weights. "
                "Name its .weights file, too"
            )
        if not layers:
            return []
        with self._lock, within_memory("Net"):
            start = perf_counter_ns()
            key = (blob.shape, tuple(names))
            compiled = self._compiled(key, blob, layers)
            outputs = compiled.program.forward(blob)
            made = [
                _shaped(compiled.graph, layer, outputs[place])
                for layer, place in zip(layers, compiled.places, strict=True)
            ]
            self._ticks = perf_counter_ns() - start
            if self._latest is None or self._latest[0] != key:
                self._latest, self._shares = (key, blob), None
        return made

    def _layer(self, name: str) -> CvLayer:
        if name not in self._by_name:
            hint = suggest(name, self._by_name)
            raise InputError(f"forward: no layer is called {name!r}.{hint} See getLayerNames()")
        return self._by_name[name]

    def _compiled(self, key: object, blob: Array, layers: Sequence[CvLayer]) -> _Compiled:
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        graph = self._sized(blob.shape[3], blob.shape[2])
        plan = lower(graph, self._weights)
        tensors = [_tensor_of(plan, graph, layer) for layer in layers]
        outputs = tuple(dict.fromkeys(tensors))
        device, precision = self._opened()
        ready = optimise(replace(plan, outputs=outputs, heads=()), device.passes)
        while len(self._programs) >= _MAX_PROGRAMS:
            self._programs.popitem(last=False)[1].program.close()
        program = device.compile(ready, batch=len(blob), precision=precision)
        places = tuple(ready.outputs.index(each) for each in tensors)
        self._programs[key] = _Compiled(graph, program, places)
        return self._programs[key]

    def _opened(self) -> tuple[Device, str]:
        name, precision = _DEVICES.get(self._target, ("cpu", "float32"))
        if self._device is None:
            try:
                self._device = open_chosen(name)
            except DeviceError as error:
                _log.warning("DNN_TARGET_CUDA: the CPU is used instead: %s", error)
                self._device = open_chosen("cpu")
        return self._device, precision if self._device.name.startswith("cuda") else "float32"

    def _close(self) -> None:
        self._programs.clear()
        self._latest = self._shares = None
        if self._device is not None:
            self._device.close()
            self._device = None

    def _measured_shares(self, compiled: _Compiled, blob: Array) -> Array:
        shares = np.zeros(len(self._layers))
        program = compiled.program
        if isinstance(program, TimedProgram):
            last = {each.node: position for position, each in enumerate(self._layers)}
            for each in program.profile(blob, repeats=1):
                shares[last[program.plan.layer_of(each.op)]] += each.milliseconds
            shares /= max(shares.sum(), 1e-9)
        return shares


# ---------------------------------------------------------------- reading


def readNetFromDarknet(
    cfgFile: Content, darknetModel: Content = "", *, epsilon: float = DARKNET_EPSILON
) -> Net:
    """Read a .cfg and its .weights, given as paths or buffers.

    Without weights, the network can be inspected but not run. Batch normalisation adds `epsilon` to
    the variance: 1e-6 gives OpenCV's numbers.
    """
    return Net.of_darknet(cfgFile, darknetModel, epsilon=epsilon)


def readNet(
    model: Content,
    config: Content = "",
    framework: Content = "",
    *,
    epsilon: float = DARKNET_EPSILON,
) -> Net:
    """Read a network: readNet(weights, cfg), readNet(cfg, weights), or with the name "darknet".

    As in OpenCV, names that end in neither .cfg nor .weights need readNet(weights, cfg, "darknet"),
    and buffers are readNet("darknet", weights, cfg). `epsilon` is explained at
    readNetFromDarknet().
    """
    return Net.of_files(model, config, framework, epsilon=epsilon)


# ---------------------------------------------------------------- values of layers


def _tensor_of(plan: Plan, graph: Graph, layer: CvLayer) -> Tensor:
    if layer.part == "channels last":
        (source,) = graph.nodes[layer.node].sources
        return plan.source if source == NETWORK_INPUT else plan.layers[source]
    if layer.part in ("output", "rows"):
        return plan.layers[layer.node]
    own = [op for op in plan.ops if plan.layer_of(op) == layer.node]
    if layer.part == "sums":
        kinds: tuple[type[ops.Op], ...] = (ops.Conv2d, ops.MatMul)
        found = next((op.out for op in own if isinstance(op, kinds)), None)
    elif layer.part == "normalised":
        found = next((op.out for op in own if isinstance(op, ops.Normalise)), None)
    else:
        found = next((op.reads[0] for op in own if isinstance(op, ops.Activate)), None)
    if found is None:
        raise InputError(
            f"{layer.name}: is computed together with the next layer and cannot be returned alone"
        )
    return found


def _shaped(graph: Graph, layer: CvLayer, values: Array) -> Array:
    """Return an output with the shape that OpenCV gives it."""
    node = graph.nodes[layer.node]
    if layer.part == "rows":
        return rows_of(node, values)
    if layer.part == "channels last":
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))
    while node.kind in KEEP_SHAPE and node.sources[0] != NETWORK_INPUT:
        node = graph.nodes[node.sources[0]]
    return values.reshape(len(values), -1) if node.kind == "connected" else values
