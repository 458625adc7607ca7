"""What the trainer's process needs of its surroundings: folders that it may write, also where the root file system is read-only."""

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
"""Variables that name a cache, and the folder that stands for it; libraries make these where the user has no home or even no name."""


def trainer_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the trainer's process: as the agent's, with a user's name, and with a home and caches that can be written.

    Parameters
    ----------
    environment : mapping from str to str
        The agent's own. What it says counts, except for a home that cannot be written.
    """
    named = {"USER": "anchorage", "LOGNAME": "anchorage"} | dict(environment)
    home = environment.get("HOME", "")
    if home and os.access(home, os.W_OK | os.X_OK):
        return named
    scratch = Path(tempfile.gettempdir())
    return {name: str(scratch / folder) for name, folder in CACHES.items()} | named | {"HOME": str(scratch)}
