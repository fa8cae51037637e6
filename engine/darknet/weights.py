"""Read and write darknet's .weights files: a header, then the arrays of all layers in order."""

from __future__ import annotations

import io
import logging
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from engine.darknet.foreign_format import describe
from engine.darknet.graph import Graph, Node
from engine.darknet.layers.base import Parameter, Weights
from engine.darknet.warnings_limit import warn_about_first
from engine.errors import WeightsError, within_memory
from engine.files.naming import shown
from engine.files.regular import open_regular
from engine.files.stamp import Stamp

_log = logging.getLogger("engine")

_FLOAT = np.dtype("<f4")
_VERSION = struct.Struct("<iii")
_MAX_VERSION = 2000  # a version above 1000 marks transposed dense weights
_MIN_HEADER_BYTES = 16
_WRITTEN_VERSION = (0, 2, 5)
_LOAD_AGAIN = ". Load the network again"
_MIN_VARIANCE = np.float32(-1e-5)  # batch normalisation adds this epsilon before the square root


@dataclass(frozen=True)
class Header:
    major: int
    minor: int
    revision: int
    seen: int  # number of training images

    @property
    def size(self) -> int:
        return _VERSION.size + (8 if _has_wide_count(self.major, self.minor) else 4)

    @property
    def is_transposed(self) -> bool:
        """Whether dense weights are stored as (inputs, outputs)."""
        return self.major > 1000 or self.minor > 1000


def load(
    path: str | Path, graph: Graph, *, least: int | None = None
) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Load the arrays of every layer from a file of exactly the size that the network needs.

    If `least` is given, the file may end after any layer as long as the first `least` layers are
    complete, as in the files that training starts from; the remaining arrays are initial().
    """
    name = shown(path)
    with open_regular(path, WeightsError) as file:
        return _load(file, os.fstat(file.fileno()).st_size, graph, name, least=least)


class WeightsFile:
    """A file that is read again later, so that its arrays need not stay in memory.

    Reading it again gives the same arrays, even from another working directory, or a WeightsError.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._name = shown(path)
        self._stamp: Stamp | None = None  # the file's stamp when first read

    def load(self, graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
        """Load the arrays of every layer, as load() does."""
        with self._open() as file:
            self._path = self._path.absolute()
            stamp = Stamp.of(os.fstat(file.fileno()))
            if self._stamp not in (None, stamp):
                raise WeightsError(f"{self._name}: has changed since it was loaded{_LOAD_AGAIN}")
            arrays = _load(file, stamp.size, graph, self._name)
            if Stamp.of(os.fstat(file.fileno())) != stamp:
                raise WeightsError(f"{self._name}: changed while it was read{_LOAD_AGAIN}")
        self._stamp = stamp
        return arrays

    def _open(self) -> BinaryIO:
        try:
            return open_regular(self._path, WeightsError)
        except WeightsError as error:
            if self._stamp is None:
                raise
            raise WeightsError(f"{error}{_LOAD_AGAIN}") from None


def loads(content: bytes, graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Load the arrays of every layer from the content of a file."""
    return _load(io.BytesIO(content), len(content), graph, "weights")


def _load(
    file: BinaryIO, size: int, graph: Graph, name: str, *, least: int | None = None
) -> tuple[dict[str, NDArray[np.float32]], ...]:
    with within_memory(name):
        try:
            header = _read_header(file, name)
            last = _last_whole_layer(graph, size - header.size, name, least=least)
            return _read_layers(file, graph, header, last=last, name=name)
        except OSError as failure:
            reason = failure.strerror or failure
            raise WeightsError(f"{name}: cannot be read: {reason}") from None


def read_header(path: str | Path) -> Header:
    """Read the header of a .weights file."""
    with open_regular(path, WeightsError) as file:
        return _read_header(file, shown(path))


def has_header(path: str | Path) -> bool:
    """Return whether a file starts like a .weights file, regardless of its name."""
    try:
        read_header(path)
    except (WeightsError, OSError):
        return False
    return True


def save(
    path: str | Path,
    graph: Graph,
    weights: Sequence[Weights],
    *,
    seen: int = 0,
    overwrite: bool = False,
) -> None:
    """Write the arrays of every layer; an existing file is kept unless `overwrite`."""
    from engine.files import part_names  # slow to import, and rarely needed

    target = Path(path)
    if not overwrite and target.exists():
        raise WeightsError(f"{shown(target)}: exists already")
    try:
        part = target.with_name(part_names.make())
        try:
            with part.open("xb") as file:
                write(file, graph, weights, seen=seen)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as failure:
        reason = failure.strerror or failure
        raise WeightsError(f"{shown(target)}: cannot be written: {reason}") from None


def write(file: BinaryIO, graph: Graph, weights: Sequence[Weights], *, seen: int = 0) -> None:
    """Write the header and the arrays of every layer to an open file."""
    file.write(_VERSION.pack(*_WRITTEN_VERSION) + struct.pack("<q", seen))
    for node, arrays in zip(graph.nodes, weights, strict=True):
        for parameter in node.stored:
            file.write(_stored_values(parameter, arrays).tobytes())


def initial(graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Return the arrays before a file is loaded: zeros, and scales of one."""
    layers: list[dict[str, NDArray[np.float32]]] = []
    for node in graph.nodes:
        if node.layer.donor is not None:
            layers.append(layers[node.layer.donor])
        else:
            layers.append({each.name: _initial(each) for each in node.parameters})
    return tuple(layers)


# ---------------------------------------------------------------- header


def _has_wide_count(major: int, minor: int) -> bool:
    return major * 10 + minor >= 2


def _read_header(file: BinaryIO, name: str) -> Header:
    start = file.read(512)
    if not start:
        raise WeightsError(f"{name}: expected weights, got an empty file")
    foreign = describe(start)
    if foreign:
        raise WeightsError(f"{name}: expected darknet weights, got {foreign}")
    if len(start) < _MIN_HEADER_BYTES:
        raise WeightsError(
            f"{name}: expected a header of {_MIN_HEADER_BYTES} bytes or more, "
            f"got {len(start)} bytes"
        )
    major, minor, revision = _VERSION.unpack_from(start)
    if not _is_sane(major, minor, revision):
        swapped = struct.unpack_from(">iii", start)
        hint = " It is written in big-endian order." if _is_sane(*swapped) else ""
        raise WeightsError(
            f"{name}: expected darknet weights, got a header of version "
            f"{major}.{minor}.{revision}.{hint}"
        )
    is_wide = _has_wide_count(major, minor)
    if len(start) < _VERSION.size + (8 if is_wide else 4):
        raise WeightsError(f"{name}: expected a header of 20 bytes, got {len(start)} bytes")
    (seen,) = struct.unpack_from("<q" if is_wide else "<i", start, _VERSION.size)
    header = Header(major, minor, revision, seen)
    file.seek(header.size)
    return header


def _is_sane(major: int, minor: int, revision: int) -> bool:
    return all(0 <= each <= _MAX_VERSION for each in (major, minor, revision))


# ---------------------------------------------------------------- sizes


def _last_whole_layer(graph: Graph, size: int, name: str, *, least: int | None) -> int:
    """Return the last layer that `size` bytes of arrays complete: the final one without `least`."""
    left = size // _FLOAT.itemsize
    filled = -1
    for node in graph.nodes:
        needed = node.parameter_count
        if needed > left:
            if left == 0 and size % _FLOAT.itemsize == 0 and filled >= 0:
                if least is not None and node.index >= least:
                    return filled
                raise _partial(graph, filled, name, least=least)
            raise _too_short(node, left, name)
        left -= needed
        if needed:
            filled = node.index
    surplus = size - _FLOAT.itemsize * graph.parameter_count
    if surplus:
        raise WeightsError(
            f"{name}: {surplus} bytes more than {graph.file} needs. Is it for another .cfg?"
        )
    return len(graph.nodes) - 1


def _partial(graph: Graph, filled: int, name: str, *, least: int | None) -> WeightsError:
    wanted = len(graph.nodes) if least is None else least
    return WeightsError(
        f"{name}: ends after {_title(graph.nodes[filled])}: expected weights for "
        f"{wanted} layers. It is a partial file, made to start training from"
    )


def _too_short(node: Node, left: int, name: str) -> WeightsError:
    for parameter in node.stored:
        if parameter.size > left:
            break
        left -= parameter.size
    return WeightsError(
        f"{name}: {_title(node)} {parameter.name}: needs {parameter.size} numbers, "
        f"file has {left} left. Is it for another .cfg?"
    )


def _title(node: Node) -> str:
    return f"layer {node.index} [{node.kind}]"


# ---------------------------------------------------------------- arrays


def _read_layers(
    file: BinaryIO, graph: Graph, header: Header, *, last: int, name: str
) -> tuple[dict[str, NDArray[np.float32]], ...]:
    layers: list[dict[str, NDArray[np.float32]]] = []
    unloaded: list[str] = []
    for node in graph.nodes:
        if node.layer.donor is not None:
            layers.append(layers[node.layer.donor])
            continue
        if node.layer.dontload and node.parameters:
            unloaded.append(f"{node.layer.where}: its weights stay zero because of dontload=1")
        in_file = {each.name for each in node.stored} if node.index <= last else set()
        arrays = {}
        for parameter in node.parameters:
            if parameter.name in in_file:
                what = f"{name}: {_title(node)} {parameter.name}"
                arrays[parameter.name] = _read_array(file, parameter, header, what)
            else:
                arrays[parameter.name] = _initial(parameter)
        layers.append(arrays)
    warn_about_first(_log, unloaded, name, "layers with dontload=1")
    return tuple(layers)


def _read_array(
    file: BinaryIO, parameter: Parameter, header: Header, what: str
) -> NDArray[np.float32]:
    values = _read_values(file, parameter.size)
    if values.size < parameter.size:
        raise WeightsError(f"{what}: the file became shorter while it was read")
    _check_values(values, parameter, what)
    is_flipped = parameter.stored == "flipped" or (
        parameter.stored == "flipped_if_header_says" and header.is_transposed
    )
    rows = values.reshape(-1, parameter.shape[0]).T if is_flipped else values
    return np.ascontiguousarray(rows.reshape(parameter.shape), np.float32)


def _read_values(file: BinaryIO, count: int) -> NDArray[np.float32]:
    if isinstance(file, io.BytesIO):  # has no descriptor for NumPy to read from
        return np.frombuffer(file.read(count * _FLOAT.itemsize), _FLOAT).copy()
    return np.fromfile(file, _FLOAT, count)


def _check_values(values: NDArray[np.float32], parameter: Parameter, what: str) -> None:
    # A finite sum is a cheap proof that all numbers are finite; only otherwise test each.
    with np.errstate(over="ignore", invalid="ignore"):
        is_suspect = not np.isfinite(values.sum())
    if is_suspect and not np.isfinite(values).all():
        bad = int(values.size - np.isfinite(values).sum())
        raise WeightsError(
            f"{what}: {bad} of {values.size} numbers are infinite or NaN. Did training diverge?"
        )
    if parameter.name.endswith("variance") and values.min() <= _MIN_VARIANCE:
        raise WeightsError(
            f"{what}: expected no negative variance, got {values.min():g}. Is it for another .cfg?"
        )


def _initial(parameter: Parameter) -> NDArray[np.float32]:
    return np.full(parameter.shape, parameter.initial, np.float32)


def _stored_values(parameter: Parameter, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    values = np.asarray(arrays[parameter.name], _FLOAT)
    if values.shape != parameter.shape:
        raise WeightsError(
            f"{parameter.name}: expected an array of {parameter.shape}, got {values.shape}"
        )
    if parameter.stored == "flipped":
        values = values.reshape(parameter.shape[0], -1).T
    return np.ascontiguousarray(values)
