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


def trainer_environment(environment: Mapping[str, str], temporary_folder: Path | None = None) -> dict[str, str]:
    """Return the trainer's environment: the agent's, completed by a user name and, without a writable home, by writable cache folders.

    Variables that the agent's environment sets are kept, except for a home that is not writable. A trainer that is confined has its caches and
    temporary files in `temporary_folder` whatever its home.
    """
    named = {"USER": "anchorage", "LOGNAME": "anchorage"} | dict(environment)
    home = environment.get("HOME", "")
    writable = bool(home) and os.access(home, os.W_OK | os.X_OK)
    if temporary_folder is None and writable:
        return named
    scratch = temporary_folder or Path(tempfile.gettempdir())
    variables = {name: str(scratch / folder) for name, folder in CACHES.items()} | named
    return (
        variables
        | ({} if writable else {"HOME": str(scratch)})
        | ({} if temporary_folder is None else {"TMPDIR": str(temporary_folder)})
    )
