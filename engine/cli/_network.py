"""Options that select a network and its weights, for commands that process no pictures."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import _model
from engine.cli._stderr import print_stderr
from engine.errors import InputError, suggest
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.darknet.graph import Graph
    from engine.passes.quantise import LayerRanges
    from engine.plan.build import Plan


def add_arguments(parser: argparse.ArgumentParser, *, has_size: bool = True) -> None:
    network = parser.add_argument_group("network")
    network.add_argument("--model", metavar="NAME", help="a network of the zoo (see: models list)")
    network.add_argument("--cfg", metavar="FILE", help="the network, instead of --model")
    network.add_argument("--weights", metavar="FILE", help="its weights")
    if has_size:
        network.add_argument("--size", type=_model.size, metavar="N|WxH", help="instead of cfg's")
    parser.set_defaults(names=None, data=None, size=None)  # needed by fill_in()


def take_files(
    arguments: argparse.Namespace, inputs: list[str], *, may_be_folders: bool = False
) -> list[str]:
    """Move CFG and WEIGHTS, or a name, from the inputs to their options; return the others.

    A folder with the name of a network counts as an input only if `may_be_folders`.
    """
    from engine.models import registry

    is_there = os.path.lexists if may_be_folders else os.path.isfile
    left: list[str] = []
    for each in inputs:
        kind = Path(each).suffix.lower().lstrip(".")
        if kind in ("cfg", "weights") and getattr(arguments, kind) is None:
            setattr(arguments, kind, each)
        elif not arguments.weights and _model.is_unnamed_weights(each):
            arguments.weights = each
        else:
            left.append(each)
    if not arguments.cfg and not arguments.model:
        names = (each for each in left if registry.knows(each) and not is_there(each))
        arguments.model = next(names, None)
        left = [each for each in left if each != arguments.model]
    return left


def take_network(arguments: argparse.Namespace) -> None:
    """Move the inputs, a CFG or a name and WEIGHTS, to their options; refuse others."""
    rest = take_files(arguments, arguments.inputs)
    if len(rest) == 1 and not arguments.cfg and not arguments.model:
        name = rest.pop()
        if _model.network(name) == name:  # a file with any extension, or something that is no name
            arguments.cfg = name
        else:
            arguments.model = name
    refuse_rest(rest)


def refuse_rest(rest: list[str]) -> None:
    if rest:
        from engine.models import registry

        is_file = os.path.isfile(rest[0])  # noqa: PTH113, which raises if a name is too long
        weights = f" If it holds the weights: --weights {shown(rest[0])}"
        is_name = registry.knows(rest[0])  # names a second network
        hint = weights if is_file else "" if is_name else suggest(rest[0], registry.names())
        raise InputError(
            f"unexpected {rest[0]!r}: expected CFG and WEIGHTS, or a name of: models list.{hint}"
        )


def graph_of(arguments: argparse.Namespace) -> Graph:
    """Read the network without its weights."""
    from engine.darknet import cfg, graph

    if not (arguments.cfg or arguments.model):
        _model.fill_in(arguments)
    path = arguments.cfg or arguments.model
    size = arguments.size
    sides = (size, size) if isinstance(size, int) else size
    return graph.build(cfg.read(_model.network(str(path))), size=sides)


def read(arguments: argparse.Namespace) -> tuple[Graph, Plan]:
    """Read the network and its weights; return it with its unfused plan."""
    from engine.darknet import weights
    from engine.darknet.lower import lower

    _model.fill_in(arguments)
    graph = graph_of(arguments)
    return graph, lower(graph, weights.load(arguments.weights, graph))


def ranges(
    arguments: argparse.Namespace, graph: Graph, plan: Plan, *, is_trained: bool
) -> LayerRanges | None:
    """Return int8 ranges, measured on noise for random weights, or None in other precisions."""
    if arguments.precision != "int8":
        if arguments.scales:
            given = arguments.precision
            wanted = f"--precision int8, not {given}" if given else "int8, as in cpu/int8"
            raise InputError(f"--scales: only with {wanted}")
        return None
    if not is_trained and not arguments.scales:
        from engine.calibrate.collect import ranges_of_noise
        from engine.passes import FUSING, optimise
        from engine.passes.quantise import where_it_gains

        return where_it_gains(optimise(plan, FUSING), ranges_of_noise(plan))
    from engine import scales

    cfg = _model.network(str(arguments.cfg or arguments.model))
    kinds = [node.kind for node in graph.nodes]
    return scales.load(arguments.scales, cfg, arguments.weights, kinds).ranges


def read_or_make(arguments: argparse.Namespace) -> tuple[Graph, Plan, bool]:
    """Do as read(), with random weights if none exist; also return whether weights are trained."""
    from engine.darknet import random_weights
    from engine.darknet.lower import lower
    from engine.models import registry, store

    if not arguments.weights:
        _model.refuse_two(arguments)
        if arguments.model:
            arguments.weights = store.local(registry.find(arguments.model))
        elif not arguments.cfg:
            _model.fill_in(arguments)
    if arguments.weights:
        return *read(arguments), True
    graph = graph_of(arguments)
    print_stderr(f"{graph.file}: no weights given: random weights are used")
    return graph, lower(graph, random_weights.arrays(graph)), False
