"""The sections of a .cfg, one file each: a file's name is the section's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from engine.darknet.layers import base
from engine.darknet.layers.base import Layer


class _Layers(Mapping[str, type[Layer]]):
    """By every spelling. A file is imported for its own section, all are for anything else."""

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
