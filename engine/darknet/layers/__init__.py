"""The layers: one file for each section of a .cfg, named after the section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from engine.darknet.layers import base
from engine.darknet.layers.base import Layer


class _Layers(Mapping[str, type[Layer]]):
    """Layer classes by section name, imported on demand.

    A section with a file of its own imports only that file; any other spelling imports them all.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)

    def __getitem__(self, section: str) -> type[Layer]:
        if section not in base.LAYERS:
            self._import({section} & self._files or self._files)
        return base.LAYERS[section]

    def __iter__(self) -> Iterator[str]:
        self._import(self._files)
        return iter(base.LAYERS)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _import(self, files: Iterable[str]) -> None:
        for name in sorted(files):
            import_module(f"{__name__}.{name}")


LAYERS = _Layers(module.name for module in iter_modules(__path__))

__all__ = ["LAYERS"]
