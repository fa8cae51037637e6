"""Describe a network: layers with shapes and operations, the size of its weights, memory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.cli import _model, _network
from engine.cli._table import align
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.cli._table import Cell
    from engine.darknet.graph import Graph, Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="CFG",
        help="a file or a name (the bundled model)",
    )
    parser.add_argument("--cfg", metavar="FILE", help="the network's .cfg")
    parser.add_argument("--model", metavar="NAME", help="a network of the zoo (see: models list)")
    parser.add_argument("--size", type=_model.size, metavar="N|WxH", help="instead of the cfg's")
    parser.set_defaults(weights=None, names=None, data=None)  # needed by fill_in()


def run(arguments: argparse.Namespace) -> int:
    names = [each for each in (*arguments.inputs, arguments.cfg, arguments.model) if each]
    if len(names) > 1:
        hint = "For weights: python -m engine weights info CFG WEIGHTS"
        raise InputError(f"expected one CFG, got {len(names)}: {names[1]!r}. {hint}")
    arguments.cfg = next(iter(names), None)
    network = _network.graph_of(arguments)
    print(*align([_HEADINGS, *map(_row, network.nodes)]), sep="\n")
    print()
    print(*align(_summary(network)), sep="\n")
    return 0


_HEADINGS = ("layer", "section", "reads", "output", "BFLOPs", "parameters")


def _row(node: Node) -> tuple[Cell, ...]:
    reads = ", ".join("input" if each < 0 else str(each) for each in node.sources)
    work = node.operations / 1e9
    return node.index, node.kind, reads, str(node.shape), work, node.parameter_count


def _summary(network: Graph) -> list[tuple[Cell, ...]]:
    resize = "letterbox" if network.letter_box else "stretch"
    rows: list[tuple[Cell, ...]] = [
        ("input", f"{network.net.shape}, pictures {resize}"),
        ("kind", network.task + (f" of {network.classes} classes" if network.classes else "")),
        ("work", f"{network.operations / 1e9:.3f} BFLOPs"),
        ("parameters", f"{network.parameter_count:,}"),
        ("weights", f"{network.weights_bytes:,} bytes"),
        ("memory", _memory(network)),
    ]
    return rows


def _memory(network: Graph) -> str:
    """Return the memory for one picture on the CPU, from a plan with untrained weights."""
    from engine.backends import open_device
    from engine.darknet import weights
    from engine.darknet.lower import lower
    from engine.passes import optimise

    device = open_device("cpu")
    plan = optimise(lower(network, weights.initial(network)), device.passes)
    memory = device.compile(plan).memory
    device.close()
    parts = (memory.total, memory.weights, memory.activations, memory.workspace)
    total, held, activations, workspace = (f"{each / 2**20:.1f} MiB" for each in parts)
    return f"{total}: weights {held}, activations {activations}, workspace {workspace}"
