"""Options that name a network and its weights, for commands that take no pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import _model
from engine.cli._stderr import tell
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.darknet.graph import Graph
    from engine.plan.build import Plan


def add_arguments(parser: argparse.ArgumentParser, *, has_size: bool = True) -> None:
    network = parser.add_argument_group("network")
    network.add_argument("--model", metavar="NAME", help="a network of the zoo: see models list")
    network.add_argument("--cfg", metavar="FILE", help="the network, in place of --model")
    network.add_argument("--weights", metavar="FILE", help="its weights")
    if has_size:
        network.add_argument("--size", type=_model.size, metavar="N|WxH", help="instead of cfg's")
    parser.set_defaults(names=None, data=None, size=None)  # what fill_in() may look at


def take_files(arguments: argparse.Namespace, inputs: list[str]) -> list[str]:
    """What is left when CFG and WEIGHTS among the inputs have become the options they stand for."""
    left = []
    for each in inputs:
        kind = Path(each).suffix.lower().lstrip(".")
        if kind in ("cfg", "weights") and getattr(arguments, kind) is None:
            setattr(arguments, kind, each)
        else:
            left.append(each)
    return left


def refuse_rest(rest: list[str]) -> None:
    if rest:
        raise InputError(f"unexpected {rest[0]!r}: expected CFG and WEIGHTS")


def graph_of(arguments: argparse.Namespace) -> Graph:
    """The network alone."""
    from engine.darknet import cfg, graph

    if not (arguments.cfg or arguments.model):
        _model.fill_in(arguments)
    path = arguments.cfg or arguments.model
    size = arguments.size
    sides = (size, size) if isinstance(size, int) else size
    return graph.build(cfg.read(_model.network(str(path))), size=sides)


def read(arguments: argparse.Namespace) -> tuple[Graph, Plan]:
    """The network with its weights, nothing fused."""
    from engine.darknet import weights
    from engine.darknet.lower import lower

    _model.fill_in(arguments)
    graph = graph_of(arguments)
    return graph, lower(graph, weights.load(arguments.weights, graph))


def read_or_make(arguments: argparse.Namespace) -> tuple[Graph, Plan, bool]:
    """As read(); weights are random, and the last is False, where none are named or here."""
    from engine.darknet import random_weights
    from engine.darknet.lower import lower
    from engine.models import registry, store

    if not arguments.weights:
        if arguments.model:
            arguments.weights = store.path(registry.find(arguments.model))
        elif not arguments.cfg:
            _model.fill_in(arguments)
    if arguments.weights:
        return *read(arguments), True
    graph = graph_of(arguments)
    tell(f"{graph.file}: without weights; random ones take their place")
    return graph, lower(graph, random_weights.arrays(graph)), False
