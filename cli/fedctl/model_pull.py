"""``fedctl model pull``: copies a federation's model to a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from anchorage.api.checking import check_document
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import TENSOR_FILE_UNUSABLE
from anchorage.api.federation import Federation
from anchorage.api.inference import DESCRIPTION, ROLES, describe, head_of
from anchorage.api.source import RawDocument
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors, write_safetensors
from fedctl.chosen_model import ChosenModel, chosen_of
from fedctl.output import Format, emit
from fedctl.source import ModelFile, Source
from fedctl.writing import refuse_existing, writing

WEIGHTS = "model.safetensors"
STATE = "method_state/"
"""Prefix of a method's own arrays in a checkpoint, which no tensor of a model has."""


def pull_model(source: Source, out: Path, best: bool, force: bool, output: Format) -> None:
    """Copy a model of a federation and its description; for an unfinished run, the last committed one. A method's own state
    is left out.

    Parameters
    ----------
    source : Source
        The federation.
    out : Path
        Folder that gets ``model.safetensors`` and ``model.json``.
    best : bool
        The best model by the first metric, where there is one, else the last.
    force : bool
        Overwrite a model in `out`.
    output : Format
        How to say what was copied.

    Raises
    ------
    AnchorageError
        Nothing is committed yet, the file is gone or damaged, or `out` cannot be written.
    BadParameter
        A model is in `out`.
    """
    if not force:
        refuse_existing(out / WEIGHTS, out / DESCRIPTION)
    pulled = read_model(source, best=best)
    path = str(out / WEIGHTS)
    _write(pulled, out)
    if output.for_people:
        typer.echo(f"{path}: {pulled.chosen}, digest {pulled.model.digest}")
    else:
        emit({"path": path, "digest": pulled.model.digest, **pulled.chosen.values()}, output)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model of a federation in memory."""

    model: ModelBytes
    """The network's tensors."""
    metadata: Mapping[str, str]
    """Of its file."""
    description: Mapping[str, Any]
    """The content of ``model.json``."""
    chosen: ChosenModel
    """Which model it is."""


def read_model(source: Source, *, best: bool) -> FoundModel:
    """Return the best model of a federation, or the last. Errors as of `pull_model`."""
    with source.model(best=best) as model_file:
        model, metadata = _read(model_file)
        role = ("best" if best else "final") if model_file.description else "checkpoint"
        shapes = {tensor.name: tensor.shape for tensor in model.layout.tensors}
        description = _describe(source, model_file, role, model.digest, shapes)
        return FoundModel(model, metadata, description, chosen_of(description, role))


def _describe(
    source: Source, model_file: ModelFile, role: str, digest: str, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the content of ``model.json``: the server's, of this model alone; before the run's end, what the documents say."""
    stored = {**model_file.description.get(role, {}), "file": WEIGHTS, "digest": digest, "round": model_file.round}
    if model_file.description:
        return {**{key: item for key, item in model_file.description.items() if key not in ROLES}, role: stored}
    scores = (record["metrics"] for record in source.rounds() if record["round"] == model_file.round)
    stored["metrics"] = next(scores, {})
    document = {key: item for key, item in source.observe().document.items() if key != "status"}
    federation, _ = check_document(RawDocument(document), Federation)
    if federation is None:
        return {role: stored}
    model, name = federation.spec.model_description, federation.metadata.name
    head = head_of(shapes)
    of_head = {"head": head.model_dump(mode="json", by_alias=True)} if head else {}
    return {**describe(model, name, classifier_trained=True), **of_head, role: stored}


def _read(model_file: ModelFile) -> tuple[ModelBytes, Mapping[str, str]]:
    """Return the network of a file whose digest is checked, and the file's metadata."""
    path, digest = model_file.path, model_file.digest
    layout, metadata = read_description(path)
    model = read_safetensors(path, layout.select(name for name in layout.by_name if not name.startswith(STATE))).model
    if model.digest != digest:
        raise AnchorageError(TENSOR_FILE_UNUSABLE, f"{path} has digest {model.digest[:12]}…, expected {digest[:12]}…")
    network = model.of_network()
    return network, {**metadata, **({"digest": network.digest} if "digest" in metadata else {})}


def _write(pulled: FoundModel, out: Path) -> None:
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        write_safetensors(out / WEIGHTS, pulled.model, metadata={**pulled.metadata, "format": "pt"})
        (out / DESCRIPTION).write_text(json.dumps(pulled.description, indent=2) + "\n")
