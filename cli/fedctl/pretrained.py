"""``fedctl weights``: pretrained weights that training may start from, kept below the data root of the coordinating site."""

import pickle
import sys
import tempfile
from contextlib import redirect_stdout
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer
from pydantic import TypeAdapter, ValidationError

from anchorage.api.base import FORMS, WEIGHTS_PATTERN
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import WEIGHTS_UNUSABLE
from anchorage.api.mistakes import suggest
from anchorage.api.model import REGISTERED, ModelSpec, WeightsName, network_called, require_package
from anchorage.methods.pretrained import WeightsFolder, not_fetched
from anchorage.transport.tensors.safetensors_file import read_description
from fedctl.downloading import limiting_silence
from fedctl.output import Format, emit, people, plain_table
from fedctl.registered_models import fetch_registered

USUAL_SIDE = 224
"""Side of the images that most encoders are made for, in pixels."""
ANSWER_SECONDS = 5.0
"""How long the source of weights may take to answer a first question."""


def pull(network: str, name: str, tracking_uri: str | None, data_root: Path, output: Format) -> None:
    """Fetch weights from where their library has them, or a registered model from MLflow.

    Raises
    ------
    AnchorageError
        WEIGHTS_UNUSABLE: the source has no such weights, or they cannot be fetched. The folder cannot be written.
    """
    library, _, member = network.partition("/")
    _require_network(network)
    _require_name(name)
    registered = name.startswith(REGISTERED)
    if library not in FETCH and not registered:
        detail = f"{network} belongs to no library that has weights by name ({', '.join(FETCH)})"
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{detail}; take a file: fedctl weights import FILE {network} NAME")
    with tempfile.TemporaryDirectory(prefix="anchorage-weights-") as folder:
        file = Path(folder) / "weights.safetensors"
        fetched = fetch_registered(name, network, tracking_uri, file) if registered else None
        source = fetched or FETCH[library](member, name, file)
        _keep(file, network, name, source, data_root, output)


def import_file(file: Path, network: str, name: str, data_root: Path, output: Format) -> None:
    """Keep the weights of a safetensors file.

    Raises
    ------
    AnchorageError
        It is none, or the folder cannot be written.
    """
    _require_network(network)
    _require_name(name)
    read_description(file)
    _keep(file, network, name, file.name, data_root, output)


def list_weights(data_root: Path, output: Format) -> None:
    """Print what is there. Raises as `WeightsFolder.entries`."""
    listed = WeightsFolder(data_root).entries()
    if not output.for_people:
        emit([entry.model_dump(by_alias=True) for entry in listed], output)
        return
    table = plain_table("network", "name", "SHA-256", "source")
    for entry in listed:
        table.add_row(entry.network, entry.name, entry.digest[:12], entry.source)
    people().print(table)


def encoder_width(network: str) -> int | None:
    """Return how many features a network's encoder gives for an image; None: it cannot be built here, or not without memory for its weights."""
    try:
        import torch

        from anchorage.learning.models import embedding_width

        with torch.device("meta"):
            return embedding_width(ModelSpec(network=network, image_size=USUAL_SIDE))
    except (ImportError, AnchorageError, NotImplementedError):  # the last: it needs the content of its tensors
        return None


def _require_network(network: str) -> None:
    try:
        network_called(network)
    except KeyError:
        raise AnchorageError(
            WEIGHTS_UNUSABLE, f"found {network!r}, which no package has; see docs/networks.md"
        ) from None
    require_package(network)


def _require_name(name: str) -> None:
    try:
        TypeAdapter(WeightsName).validate_python(name)
    except ValidationError as error:
        message = f"found the name {name!r}, expected {FORMS[WEIGHTS_PATTERN]}"
        raise AnchorageError(WEIGHTS_UNUSABLE, message) from error


def _keep(file: Path, network: str, name: str, source: str, data_root: Path, output: Format) -> None:
    folder = WeightsFolder(data_root)
    entry = folder.add(file, network, name, source)
    if output.for_people:
        typer.echo(f"stored {entry}\nin {folder.folder.resolve()}")
        typer.echo(f"in the file: model: {{network: {entry.network}, weights: {entry.name}}}")
    else:
        emit(entry.model_dump(by_alias=True), output)


def _require_answer(url: str, source: str) -> None:
    """Check that a server answers, whatever it says: libraries ask one that does not again and again, for minutes.

    Raises
    ------
    AnchorageError
        WEIGHTS_UNUSABLE: it cannot be reached.
    """
    try:
        with urlopen(Request(url, method="HEAD"), timeout=ANSWER_SECONDS):
            pass
    except HTTPError as error:
        error.close()  # its answer holds the connection
    except HTTPException:
        pass
    except OSError as error:
        why = getattr(error, "reason", error)
        if not isinstance(why, SSLError):  # the library may trust other authorities
            raise not_fetched(source, why if isinstance(why, Exception) else error) from error


def _of_torchvision(member: str, name: str, file: Path) -> str:
    """Write torchvision's weights to a safetensors file and return their address.

    The downloaded file is a pickle, of which only tensors are read (``weights_only``); torchvision's name of it holds the beginning of its SHA-256.
    """
    import torch
    from safetensors.torch import save_file
    from torchvision.models import get_model_weights, list_models

    if member not in list_models():
        raise AnchorageError(WEIGHTS_UNUSABLE, f"torchvision has no network {member}, {suggest(member, list_models())}")
    known = {one.name: one for one in get_model_weights(member)}  # not DEFAULT, which changes with the library
    if name not in known:
        raise AnchorageError(
            WEIGHTS_UNUSABLE, f"torchvision has no weights {name} of {member}; it has {', '.join(known)}"
        )
    url: str = known[name].url
    _require_answer(url, url)
    try:
        with limiting_silence(), redirect_stdout(sys.stderr):  # torch says there what it downloads
            state = torch.hub.load_state_dict_from_url(
                url, model_dir=str(file.parent), map_location="cpu", check_hash=True, weights_only=True
            )
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        if isinstance(error, HTTPError):
            error.close()  # its answer holds the connection
        raise not_fetched(url, error) from error
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, file)
    return url


def _of_timm(member: str, name: str, file: Path) -> str:
    """Write timm's weights of a tag to a safetensors file and return where timm has them."""
    import timm
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import HfHubHTTPError
    from safetensors.torch import save_file

    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{member}.*")]
    if name not in tags:
        detail = f"timm has no weights {name} of {member}; it has {', '.join(tags) or 'none'}"
        raise AnchorageError(WEIGHTS_UNUSABLE, detail)
    full = f"{member}.{name}"
    source = f"timm/{full} on Hugging Face"
    if not isinstance(try_to_load_from_cache(f"timm/{full}", "model.safetensors"), str):
        _require_answer(ENDPOINT, source)
    try:
        with limiting_silence():
            state = timm.create_model(full, pretrained=True).state_dict()
    except (OSError, RuntimeError, ValueError, HfHubHTTPError) as error:
        raise not_fetched(source, error) from error
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, file)
    return source


FETCH = {"torchvision": _of_torchvision, "timm": _of_timm}
