"""The sections of a .cfg, one file each: a file's name is the section's."""

from importlib import import_module
from pkgutil import iter_modules

from engine.darknet.layers.base import LAYERS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["LAYERS"]
