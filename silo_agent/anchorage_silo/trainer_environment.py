"""Environment variables of the trainer process: writable folders, even where the root file system is read-only."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

CACHES = {
    "MPLCONFIGDIR": "matplotlib",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TORCH_HOME": "torch",
    "TRITON_CACHE_DIR": "triton",
    "XDG_CACHE_HOME": "cache",
}
"""Variables that name a library's cache folder, and the folder used if the user has no writable home."""


def trainer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the trainer's environment: the agent's, completed by a user name and, without a writable home, by writable cache folders.

    Variables that the agent's environment sets are kept, except for a home that is not writable.
    """
    named = {"USER": "anchorage", "LOGNAME": "anchorage"} | dict(environment)
    home = environment.get("HOME", "")
    if home and os.access(home, os.W_OK | os.X_OK):
        return named
    scratch = Path(tempfile.gettempdir())
    return {name: str(scratch / folder) for name, folder in CACHES.items()} | named | {"HOME": str(scratch)}
