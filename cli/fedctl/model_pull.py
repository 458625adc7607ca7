"""``fedctl model pull``: a run's model as a file."""

import json
from pathlib import Path
from typing import Any

import typer

from anchorage.errors import AnchorageError, commands
from anchorage.errors.storage import TENSOR_FILE_UNUSABLE
from anchorage.tensors.safetensors_file import read_description, read_safetensors, write_safetensors
from fedctl.observation import observe
from fedctl.output import Format, emit
from fedctl.workdir import Workdir, read_json

STATE = "method_state/"
"""Prefix of a method's own arrays in a checkpoint, which no tensor of a model has."""


def pull_model(run: Workdir, out: Path, best: bool, output: Format) -> None:
    """Copy a model of a run and its description; of a run that goes on, the last committed one. A method's own state
    is left out.

    Parameters
    ----------
    run : Workdir
        The run.
    out : Path
        Folder that gets ``model.safetensors`` and ``model.json``.
    best : bool
        The best model by the first metric instead of the last.
    output : Format
        How to say what was copied.

    Raises
    ------
    AnchorageError
        Nothing is committed yet, the file is gone or damaged, or `out` cannot be written.
    """
    status = observe(run).status
    stored = status.best_model if best else status.model
    if stored is not None:
        path, digest, number = Path(stored.path), stored.digest, stored.round
    elif status.last_checkpoint is not None and not best:
        last = status.last_checkpoint
        path, digest, number = Path(last.path), last.digest, last.round
    else:
        what = "best model" if best else "model"
        raise AnchorageError(commands.NO_MODEL_YET, f"{run.root} has no {what} yet; it comes with the run's end")
    facts = {"path": str(out / "model.safetensors"), "digest": digest, "round": number}
    _copy(path, out, digest, {**_description(run), **facts})
    if output.for_people:
        typer.echo(f"{facts['path']}: round {number}, digest {digest}")
    else:
        emit(facts, output)


def _description(run: Workdir) -> dict[str, Any]:
    known: dict[str, Any] = read_json(run.model / "model.json") or {}
    return known


def _copy(path: Path, out: Path, digest: str, description: dict[str, Any]) -> None:
    if not path.exists():
        raise AnchorageError(commands.NO_MODEL_YET, f"{path} is gone; run the command again")
    layout, metadata = read_description(path)
    model = read_safetensors(path, layout.select(name for name in layout.by_name if not name.startswith(STATE))).model
    if model.digest != digest:
        raise AnchorageError(TENSOR_FILE_UNUSABLE, f"{path} has digest {model.digest[:12]}…, expected {digest[:12]}…")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_safetensors(out / "model.safetensors", model, metadata={**metadata, "format": "pt"})
        (out / "model.json").write_text(json.dumps(description, indent=2) + "\n")
    except OSError as error:
        raise AnchorageError(commands.WORKDIR_UNUSABLE, f"{out} cannot be written: {error.strerror}") from error
