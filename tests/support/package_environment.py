"""Environments of processes that see the packages in a folder as installed."""

import os
from collections.abc import Mapping
from pathlib import Path


def environment_with(folder: Path) -> Mapping[str, str]:
    """Return this process's environment with a folder first among those of Python's packages."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
