"""A registered model of MLflow as weights to start from: its safetensors file alone is fetched, and nothing of it is run."""

import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import PACKAGE_MISSING
from anchorage.api.errors.data import WEIGHTS_UNUSABLE
from anchorage.api.inference import DESCRIPTION, read_inference
from anchorage.api.mistakes import without_password
from anchorage.api.model import REGISTERED
from anchorage.engine.tracking.process import ENVIRONMENT
from anchorage.methods.pretrained import not_fetched
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors

if TYPE_CHECKING:
    from mlflow.entities import FileInfo
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

_SQLITE = "sqlite:///"
_WEIGHTS = ".safetensors"
_MOST_FILES = 1000
_MOST_BYTES = 64 << 30
"""Bytes of a file that is fetched."""
_SHOWN = 5
"""Files that a message names."""


def fetch_registered(name: str, network: str, uri: str | None, file: Path) -> str:
    """Write the weights of a registered model to a safetensors file and return its version and store.

    Parameters
    ----------
    name : str
        ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
    network : str
        Network that they are for. A model that this project registered must be of it; of others the network is not known.
    uri : str or None
        MLflow tracking URI.
    file : Path
        The file.

    Raises
    ------
    AnchorageError
        WEIGHTS_UNUSABLE: MLflow has no such model, cannot be reached, or the model holds no safetensors file, several, or a damaged one.
        PACKAGE_MISSING: MLflow is not installed.
    """
    _require_store(name, uri)
    assert uri is not None, "_require_store has seen it"
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import SQLAlchemyError

        from anchorage.engine.tracking.refusal import refusal_hint
    except ImportError as error:
        message = f"{name} needs {error.name}, which is not installed; install it with: pip install 'anchorage[server]'"
        raise AnchorageError(PACKAGE_MISSING, message) from error
    called, slash, version = name.removeprefix(REGISTERED).partition("/")
    store = Path(uri).name if uri.startswith(_SQLITE) else without_password(uri)
    try:
        client = MlflowClient(uri, registry_uri=uri)
        if not slash:
            called, _, alias = called.rpartition("@")
            version = str(client.get_model_version_by_alias(called, alias).version)
        source = f"{REGISTERED}{called}/{version} in {store}"
        place = client.get_model_version_download_uri(called, version)
        artifacts = get_artifact_repository(place, tracking_uri=uri, registry_uri=uri)
        _fetch(artifacts, source, network, file)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if hint := refusal_hint(error):
            raise AnchorageError(WEIGHTS_UNUSABLE, f"{name} in {store} cannot be fetched: {hint}") from error
        raise not_fetched(f"{name} in {store}", error) from error
    except ImportError as error:  # a store of artifacts has a package of its own, such as boto3
        raise not_fetched(f"{name} in {store}", error) from error
    return source


def _require_store(name: str, uri: str | None) -> None:
    """Check that MLflow is named; a store that is asked for is made by MLflow, so one that is a file must be there."""
    if uri is None:
        message = f"{name} is a registered model; say which MLflow has it: --tracking-uri http://… or sqlite:///…"
        raise AnchorageError(WEIGHTS_UNUSABLE, message)
    if uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).is_file():
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{name}: there is no store {uri.removeprefix(_SQLITE)}")


def _fetch(artifacts: "ArtifactRepository", source: str, network: str, file: Path) -> None:
    files = _files_of(artifacts, source)
    held = [file_info for file_info in files if file_info.path.endswith(_WEIGHTS)]
    if len(held) != 1:
        other = ", ".join(PurePosixPath(file_info.path).name for file_info in (held or files)[:_SHOWN])
        what = f"{len(held)} safetensors files" if held else "no safetensors file"
        message = f"{source} holds {what} ({other or 'nothing'}), needed is one; pickles are never read"
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{message}; take a file: fedctl weights import FILE {network} NAME")
    description_path = str(PurePosixPath(held[0].path).with_name(DESCRIPTION))
    with tempfile.TemporaryDirectory(prefix="registered-", dir=file.parent) as folder:
        for file_info in (held[0], *(each for each in files if each.path == description_path)):
            if (file_info.file_size or 0) > _MOST_BYTES:
                raise AnchorageError(
                    WEIGHTS_UNUSABLE, f"{source}: {file_info.path} has more than {_MOST_BYTES >> 30} GiB"
                )
            artifacts.download_artifacts(file_info.path, folder)  # type: ignore[no-untyped-call]
        weights = Path(folder) / held[0].path
        _check(weights, source, network)
        weights.replace(file)


def _files_of(artifacts: "ArtifactRepository", source: str) -> list["FileInfo"]:
    """Return what files a version has.

    Raises
    ------
    AnchorageError
        WEIGHTS_UNUSABLE: they are too many, or one lies outside of the version's folder.
    """
    files: list[FileInfo] = []
    folders, file_count = [""], 0
    while folders:
        listed = artifacts.list_artifacts(folders.pop())
        file_count += len(listed)
        paths = [PurePosixPath(file_info.path) for file_info in listed]
        if file_count > _MOST_FILES or any(path.is_absolute() or ".." in path.parts for path in paths):
            message = f"{source} has more than {_MOST_FILES} files, or one outside of its folder"
            raise AnchorageError(WEIGHTS_UNUSABLE, message)
        folders += [file_info.path for file_info in listed if file_info.is_dir]
        files += [file_info for file_info in listed if not file_info.is_dir]
    return files


def _check(weights: Path, source: str, network: str) -> None:
    """Check that a file is one of safetensors and, where this project registered it, that it is whole and of the network.

    Raises
    ------
    AnchorageError
        It is not.
    """
    read_description(weights)
    if not (weights.parent / DESCRIPTION).is_file():
        return
    described = read_inference(weights.parent / DESCRIPTION)
    if described.network != network:
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{source} is a {described.network}, not a {network}")
    _, stored = described.choose(best=True)  # the only one of a registered model
    if stored.file != weights.name or read_safetensors(weights).model.digest != stored.digest:
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{source}: {weights.name} is not as {DESCRIPTION} says")
