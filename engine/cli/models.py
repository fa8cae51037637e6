"""List, download, locate and verify the weights of the zoo.

list             all networks, and whether their weights are downloaded
pull NAME…       download weights
path NAME        print the path of downloaded weights
verify [NAME…]   compare hashes; without a name, those of all downloaded weights
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.cli import FAILED
from engine.cli._download import progress_of
from engine.cli._stderr import print_stderr
from engine.cli._table import align
from engine.errors import DownloadError, InputError, suggest

if TYPE_CHECKING:
    from engine.cli._table import Cell
    from engine.models.registry import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help="networks, as list shows them"
    )


def run(arguments: argparse.Namespace) -> int:
    action = arguments.action
    if action not in _ACTIONS:
        raise InputError(
            f"no action {action!r}: expected {', '.join(_ACTIONS)}.{suggest(action, _ACTIONS)}"
        )
    return _ACTIONS[action](arguments.names)


def _list(names: list[str]) -> int:
    from engine.models import registry, store

    every = [*registry.bundled_models(), *registry.models().values()]
    chosen = _found(names) if names else every
    rows: list[tuple[Cell, ...]] = [
        ("name", "task", "input", "MB", "weights"),
        *(_row(each) for each in chosen),
    ]
    print(*align(rows), sep="\n")
    print(f"\nDownloads go to {store.folder()}")
    return 0


def _row(model: Model) -> tuple[Cell, ...]:
    from engine.models import store

    state = "here" if store.path(model) else "to pull" if model.urls else "no permanent URL"
    return model.name, model.task, model.input, f"{model.bytes / 1e6:.1f}", state


def _pull(names: list[str]) -> int:
    from engine.models import store

    failures = 0
    if not names:
        raise InputError("models pull: expected at least one NAME. See: models list")
    for model in _found(names):
        try:
            if found := store.local(model):
                print(f"{found}: is already present")
                continue
            with progress_of(model) as show:
                print(store.pull(model, progress=show))
        except DownloadError as error:
            failures += 1
            print_stderr(f"Error: {error}")
    return FAILED if failures else 0


def _path(names: list[str]) -> int:
    from engine.models import store

    if len(names) != 1:
        raise InputError(f"models path: expected one NAME, got {len(names)}")
    (model,) = _found(names)
    found = store.local(model)
    if found is None:
        if not model.urls:
            target = store.folder() / model.file
            raise DownloadError(
                f"{model.name}: no weights on this machine: {model.note}. Put the file at {target}"
            )
        hint = f"Run: python -m engine models pull {model.name}"
        raise DownloadError(f"{model.name}: no weights on this machine. {hint}")
    print(found)
    return 0


def _verify(names: list[str]) -> int:
    from engine.models import registry, store

    failures = present = 0
    for model in _found(names) if names else registry.models().values():
        try:
            state = store.verify(model)
        except DownloadError as error:
            failures += 1
            print_stderr(f"Error: {error}")
            continue
        if state == "missing" and names:
            failures += 1
            print_stderr(f"Error: {model.name}: no weights on this machine")
        elif state != "missing":
            present += 1
            print(f"{model.name}: {_STATES[state]}")
    if not (failures or present):
        print(f"nothing to verify: no weights are in {store.folder()}")
    return FAILED if failures else 0


_ACTIONS: dict[str, Callable[[list[str]], int]] = {
    "list": _list,
    "pull": _pull,
    "path": _path,
    "verify": _verify,
}

_STATES = {
    "verified": "as published",
    "trusted": "as first downloaded; no hash is published",
    "unknown": "of the right size; no hash is known, so nothing was compared",
}


def _found(names: list[str]) -> list[Model]:
    from engine.models import registry

    return [registry.find(name) for name in names]
