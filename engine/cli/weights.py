"""Inspect, verify, cut and fuse weights.

info [CFG] WEIGHTS            print the header, the hash, and whether the file fits the .cfg
verify CFG WEIGHTS            check that the size is exact and all numbers are finite
cut CFG WEIGHTS N -o FILE     write the weights of the first N layers, like darknet's partial;
                              WEIGHTS may be such a file of more layers
fuse CFG WEIGHTS -o FILE      fold batch normalisation; write the matching .cfg next to FILE
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.arguments import parse_integer
from engine.cli import _model, _network, _output_files
from engine.cli._table import align
from engine.errors import InputError, suggest
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.cli._table import Cell

_SEEN = 0  # as darknet's partial command resets the counter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument(
        "inputs", nargs="*", default=[], metavar="CFG WEIGHTS [N]", help="the network, or its name"
    )
    _network.add_arguments(parser, has_size=False)
    parser.add_argument("-o", "--output", metavar="FILE", help="the .weights file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


def run(arguments: argparse.Namespace) -> int:
    action = arguments.action
    if action not in _ACTIONS:
        raise InputError(
            f"no action {action!r}: expected {', '.join(_ACTIONS)}.{suggest(action, _ACTIONS)}"
        )
    _ACTIONS[action](arguments, _network.take_files(arguments, arguments.inputs))
    return 0


def _info(arguments: argparse.Namespace, rest: list[str]) -> None:
    from engine.darknet import weights
    from engine.models.digest import digest

    _network.refuse_rest(rest)
    has_network = bool(arguments.cfg or arguments.model)
    if has_network or not arguments.weights:
        _model.fill_in(arguments)
        has_network = True
    path = Path(arguments.weights)
    header = weights.read_header(path)
    size = path.stat().st_size
    rows: list[tuple[Cell, ...]] = [
        ("file", shown(path)),
        ("bytes", f"{size:,} (header: {header.size})"),
        ("sha256", digest(path, "sha256")),
        ("version", f"{header.major}.{header.minor}.{header.revision}"),
        ("seen", f"{header.seen:,} pictures"),
        ("numbers", f"{(size - header.size) // 4:,}"),
    ]
    if has_network:
        graph = _network.graph_of(arguments)
        needed = graph.parameter_count
        state = "fits" if size == header.size + 4 * needed else "does not fit"
        rows.append((graph.file, f"needs {needed:,} numbers: {state}"))
    print(*align(rows), sep="\n")


def _verify(arguments: argparse.Namespace, rest: list[str]) -> None:
    _network.refuse_rest(rest)
    graph, _ = _network.read(arguments)
    count = graph.parameter_count
    print(f"{shown(arguments.weights)}: fits {graph.file}: {count:,} numbers, all finite")


def _cut(arguments: argparse.Namespace, rest: list[str]) -> None:
    from engine.darknet import surgery, weights
    from engine.files.atomic import NewFile

    count = parse_integer(rest[0]) if len(rest) == 1 else None
    if count is None:
        got = shown(" ".join(rest)) or "none"
        raise InputError(f"cut: expected a number of layers, got {got}")
    output = _output(arguments)
    _model.fill_in(arguments)
    graph = _network.graph_of(arguments)
    part = surgery.cut(graph, count)
    arrays = weights.load(arguments.weights, graph, least=count)[:count]
    new = NewFile(output, overwrite=arguments.overwrite, hint=_output_files.HINT)
    with new as file, file.part.open("wb") as out:
        weights.write(out, part, arrays, seen=_SEEN)
    last = part.nodes[-1]
    print(f"{shown(output)}: {part.weights_bytes:,} bytes, up to layer {last.index} [{last.kind}]")


def _fuse(arguments: argparse.Namespace, rest: list[str]) -> None:
    from engine.darknet import surgery, weights
    from engine.files.atomic import NewFile

    _network.refuse_rest(rest)
    output = _output(arguments)
    cfg_path = output.with_suffix(".cfg")
    _check(arguments, str(cfg_path))
    _model.fill_in(arguments)
    graph = _network.graph_of(arguments)
    path = _model.network(str(arguments.cfg))
    if Path(path).parent.absolute() != output.parent.absolute():
        surgery.require_trees(graph, output.parent)
    arrays = weights.load(arguments.weights, graph)
    text, fused, folded = surgery.fuse(path, arrays)
    seen = weights.read_header(arguments.weights).seen
    options = {"overwrite": arguments.overwrite, "hint": _output_files.HINT}
    with NewFile(cfg_path, **options) as cfg_file, NewFile(output, **options) as file:
        with file.part.open("wb") as out:
            weights.write(out, fused, folded, seen=seen)
        cfg_file.part.write_text(text, encoding="utf-8")
    print(f"{shown(output)}: {fused.weights_bytes:,} bytes")
    print(f"{shown(cfg_path)}: its network")


_ACTIONS: dict[str, Callable[[argparse.Namespace, list[str]], None]] = {
    "info": _info,
    "verify": _verify,
    "cut": _cut,
    "fuse": _fuse,
}


def _output(arguments: argparse.Namespace) -> Path:
    if not arguments.output:
        raise InputError("no output named: expected -o FILE")
    if Path(arguments.output).suffix != ".weights":
        raise InputError(f"-o {shown(arguments.output)}: expected a name that ends in .weights")
    _check(arguments, arguments.output)
    return Path(arguments.output)


def _check(arguments: argparse.Namespace, output: str) -> None:
    reserved = _output_files.ReservedPaths(_model.files(arguments))
    _output_files.check_output("-o", output, reserved, overwrite=arguments.overwrite)
