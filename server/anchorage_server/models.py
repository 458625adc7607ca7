"""Which model files a state folder holds."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorage.api.inference import DESCRIPTION
from anchorage.api.regular_files import read_regular
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.checkpoints import checkpoint_name
from anchorage.engine.store.durable import storage_errors

_RESULT = re.compile(r"(final|best)\.safetensors")
_CHECKPOINT = re.compile(r"round-\d{6,}\.safetensors")


def describe_models(state: Path, last: RoundRecord | None) -> dict[str, Any]:
    """Return what models there are.

    Parameters
    ----------
    state : Path
        The server's state folder.
    last : RoundRecord or None
        The last committed round.

    Returns
    -------
    dict
        ``final`` and ``best`` after the run's end, ``checkpoint`` after the first commit: each with ``file`` (for `model_file`), ``bytes``,
        ``digest`` and ``round``, or None. ``description``: what ``model.json`` says of the run, or None.

    Raises
    ------
    AnchorageError
        A file cannot be read.
    """
    models: dict[str, Any] = {"final": None, "best": None, "checkpoint": None, "description": None}
    file = state / "model" / DESCRIPTION
    with storage_errors("read the model's description", file):
        if file.exists():
            values = json.loads(read_regular(file))
            stored = {name: values.pop(name) for name in ("final", "best")}
            if (
                last is None or last.round <= stored["final"]["round"]
            ):  # else more rounds were asked for, and are not over
                models |= {name: _describe(state, described) for name, described in stored.items()}
                models["description"] = values
        if last is not None:
            name = checkpoint_name(last.round)
            models["checkpoint"] = _describe(state, {"file": name, "digest": last.digest, "round": last.round})
    return models


def model_file(state: Path, name: str) -> Path | None:
    """Return where the file of this name lies, which `describe_models` gave; None for any other name."""
    if _RESULT.fullmatch(name):
        return state / "model" / name
    return state / "checkpoints" / name if _CHECKPOINT.fullmatch(name) else None


def _describe(state: Path, values: Mapping[str, Any]) -> dict[str, Any] | None:
    path = model_file(state, values["file"])
    if path is None or not path.exists():
        return None
    return {**values, "bytes": path.stat().st_size}
