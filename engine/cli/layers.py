"""List the sections of .cfg files with their options and defaults."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from engine.cli._table import align
from engine.errors import InputError, suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", nargs="?", help="show only this section")


def run(arguments: argparse.Namespace) -> int:
    chosen = sections()
    if arguments.section:
        wanted = arguments.section.strip("[]")
        chosen = [each for each in chosen if wanted in each[0]]
        if not chosen:
            known = [name for names, _ in sections() for name in names]
            raise InputError(f"no section [{wanted}].{suggest(wanted, known)}")
    for names, options in chosen:
        print(*(f"[{name}]" for name in names))
        print(*align([(f"  {key}", default) for key, default in options]), sep="\n")
    return 0


def sections() -> list[tuple[list[str], list[tuple[str, str]]]]:
    """Return the spellings of each section's name and its options with their defaults."""
    from engine.darknet import options
    from engine.darknet.layers import LAYERS
    from engine.darknet.layers.net import Net

    kinds: dict[type, list[str]] = {Net: list(Net.spellings)}
    for name, kind in LAYERS.items():
        kinds.setdefault(kind, []).append(name)
    return [
        (
            names,
            [
                (key, _default(field))
                for key, field in zip(options.keys(kind), options.option_fields(kind), strict=True)
            ],
        )
        for kind, names in kinds.items()
    ]


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if field.metadata.get("required"):
        return "required"
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
