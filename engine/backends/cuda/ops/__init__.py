"""The host side of every kernel that is not a convolution: one file for each family of ops.

Importing this package registers how each op and head is run.
"""

from importlib import import_module
from pkgutil import iter_modules

for _each in iter_modules(__path__):
    import_module(f"{__name__}.{_each.name}")
