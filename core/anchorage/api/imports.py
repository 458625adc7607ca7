"""Imports large packages, such as torch, in less time."""

import gc
import sys
from importlib import import_module


def import_large(module: str) -> None:
    """Import a module without looking for cyclic garbage meanwhile, and leave what is in memory then out of every later search.

    Each search reads all that was imported before: with torch it takes a seventh of the import's time, and more when the process ends.

    Parameters
    ----------
    module : str
        Its full name. Where it is imported already, nothing happens.
    """
    if module in sys.modules:
        return
    collected = gc.isenabled()
    gc.disable()
    try:
        import_module(module)
    finally:
        gc.freeze()
        if collected:
            gc.enable()
