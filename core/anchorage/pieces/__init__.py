"""The alternatives of every slot of a method: a folder per slot, a file per alternative.

Importing this package registers them; it is the entry point ``anchorage`` of the group ``anchorage.pieces``.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in sorted(module.name for module in walk_packages(__path__, f"{__name__}.") if not module.ispkg):
    import_module(_module)
