"""``fedctl weights``: fetched once at the coordinating site, kept by digest, and what a run starts from."""

import hashlib
import json
import socket
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision import models
from torchvision.models import get_model
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import WEIGHTS_UNUSABLE
from anchorage.api.federation import Federation
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve
from anchorage.methods.pretrained import WeightsFolder, initial_of, initial_source
from fedctl.main import app

NETWORK, NAME = "torchvision/mobilenet_v3_small", "IMAGENET1K_V1"


def spec_of(network: str, name: str, side: int = 32) -> Any:
    model = {"network": network, "imageSize": side, "channels": 1, "weights": name}
    task = {"classification": {"classes": ["a", "b"]}}
    spec = {"rounds": 1, "task": task, "model": model, "method": {"name": "FedAvg"}}
    return Federation.model_validate({"kind": "Federation", "metadata": {"name": "f"}, "spec": spec}).spec


def fedctl(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["weights", *map(str, arguments)])
    if isinstance(result.exception, AnchorageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server on loopback with weights as torchvision publishes them: its address stands in for the library's."""
    torch.manual_seed(2)
    state = get_model("mobilenet_v3_small", weights=None).state_dict()
    folder = tmp_path / "published"
    folder.mkdir()
    torch.save(state, folder / "weights.pth")
    digest = hashlib.sha256((folder / "weights.pth").read_bytes()).hexdigest()
    (folder / "weights.pth").rename(folder / f"net-{digest[:8]}.pth")

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/net-{digest[:8]}.pth"

    def publish(url: str) -> None:
        entry = models.get_model_weights("mobilenet_v3_small")[NAME]
        monkeypatch.setattr(entry, "_value_", models._api.Weights(url, entry.transforms, entry.meta))

    publish(address)
    yield state, address, publish
    server.shutdown()
    thread.join()
    server.server_close()


def test_weights_are_pulled_by_the_librarys_name_and_training_starts_from_them(published: Any, tmp_path: Path) -> None:
    state, address, _ = published
    entry = json.loads(fedctl("pull", NETWORK, NAME, "--data-root", tmp_path, "-o", "json").stdout)
    assert (entry["network"], entry["name"], entry["source"]) == (NETWORK, NAME, address)
    file = tmp_path / "weights" / f"{entry['digest']}.safetensors"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == entry["digest"]
    assert load_file(file).keys() == state.keys()
    spec = spec_of(NETWORK, NAME)
    assert initial_of(spec, tmp_path) == file
    assert initial_source(spec, tmp_path) == f"{NAME} of {NETWORK} from {address} (SHA-256 {entry['digest']})"
    learner = build_server_learner(
        model=spec.model_description, method=resolve(spec.method), seed=1, initial=initial_of(spec, tmp_path)
    )
    arrays = learner.initialise().arrays()
    name = "features.12.0.weight"
    assert torch.equal(torch.from_numpy(arrays[f"encoder.network.{name}"].copy()), state[name])


def test_what_cannot_be_fetched_is_said_and_leaves_nothing(published: Any, tmp_path: Path) -> None:
    _, address, publish = published
    publish(address.replace("/net-", "/net-0"))
    with pytest.raises(AnchorageError, match="cannot be fetched: HTTP Error 404.*copy the folder") as caught:
        fedctl("pull", NETWORK, NAME, "--data-root", tmp_path)
    assert caught.value.failure is WEIGHTS_UNUSABLE
    assert not (tmp_path / "weights").exists()


def refuse_to_load(*arguments: Any, **options: Any) -> None:
    raise AssertionError("the library would try for minutes")


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{occupied.getsockname()[1]}"


def test_a_source_out_of_reach_is_not_asked_again_and_again(
    published: Any, nowhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, publish = published
    publish(f"{nowhere}/net.pth")
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse_to_load)
    with pytest.raises(AnchorageError, match="Connection refused.*fedctl weights import") as caught:
        fedctl("pull", NETWORK, NAME, "--data-root", tmp_path)
    assert caught.value.failure is WEIGHTS_UNUSABLE and not (tmp_path / "weights").exists()


def test_a_hub_out_of_reach_is_not_asked_again_and_again(
    nowhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm, hub = pytest.importorskip("timm"), pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "ENDPOINT", nowhere)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda repository, file: None)
    monkeypatch.setattr(timm, "create_model", refuse_to_load)
    pull = ("pull", "timm/resnet18", "a1_in1k", "--data-root", tmp_path)
    with pytest.raises(AnchorageError, match="Connection refused.*fedctl weights import") as caught:
        fedctl(*pull)
    assert caught.value.failure is WEIGHTS_UNUSABLE and not (tmp_path / "weights").exists()
    model = SimpleNamespace(state_dict=lambda: {"w": torch.zeros(2)})
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: model)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda repository, file: f"/cache/{repository}/{file}")
    fedctl(*pull)
    assert WeightsFolder(tmp_path).find("timm/resnet18", "a1_in1k"), "what the library has already needs no answer"


@pytest.mark.parametrize(
    ("network", "name", "expected"),
    [
        (NETWORK, "IMAGENET1K_V9", "has no weights IMAGENET1K_V9 of mobilenet_v3_small; it has IMAGENET1K_V1"),
        ("torchvision/resnet19", NAME, "torchvision has no network resnet19, did you mean resnet18"),
        ("ResNet18", NAME, "no library that has weights by name .*fedctl weights import FILE ResNet18"),
        ("ResNet", NAME, "which no package has"),
    ],
)
def test_names_that_nobody_has_are_refused(tmp_path: Path, network: str, name: str, expected: str) -> None:
    with pytest.raises(AnchorageError, match=expected):
        fedctl("pull", network, name, "--data-root", tmp_path)


def test_files_are_imported_listed_and_replaced(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save_file({"classifier.weight": torch.full((2, 2), value)}, tmp_path / "own.safetensors")
        fedctl("import", tmp_path / "own.safetensors", "ResNet18", "skin.v1", "--data-root", tmp_path)
    (entry,) = json.loads(fedctl("list", "--data-root", tmp_path, "-o", "json").stdout)
    assert entry["source"] == "own.safetensors" and "own.safetensors" in fedctl("list", "--data-root", tmp_path).stdout
    assert entry["digest"] == hashlib.sha256((tmp_path / "own.safetensors").read_bytes()).hexdigest()
    (tmp_path / "text").write_text("no weights")
    for file, name in (("text", "v"), ("own.safetensors", "a b")):
        with pytest.raises(AnchorageError):
            fedctl("import", tmp_path / file, "ResNet18", name, "--data-root", tmp_path)
    assert len(WeightsFolder(tmp_path).entries()) == 1


@pytest.mark.parametrize("damage", ["absent", "cut", "other bytes", "index"])
def test_weights_that_are_not_as_stored_end_before_anything_starts(tmp_path: Path, damage: str) -> None:
    save_file({"classifier.weight": torch.ones(2, 2)}, tmp_path / "own.safetensors")
    folder = WeightsFolder(tmp_path)
    file = folder.file_of(folder.add(tmp_path / "own.safetensors", "ResNet18", "v", "own"))
    if damage == "absent":
        file.unlink()
    elif damage == "index":
        (folder.folder / "index.json").write_text('{"weights": [1]}')
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + (b"" if damage == "cut" else b"\x07"))
    with pytest.raises(AnchorageError) as caught:
        initial_of(spec_of("ResNet18", "v"), tmp_path)
    assert caught.value.failure is WEIGHTS_UNUSABLE


def test_a_vision_transformers_positions_are_interpolated(tmp_path: Path) -> None:
    torch.manual_seed(4)
    large = get_model("vit_b_16", weights=None, image_size=96)
    nn.init.normal_(large.encoder.pos_embedding)
    save_file(large.state_dict(), tmp_path / "vit.safetensors")
    spec = spec_of("torchvision/vit_b_16", "v", 64)
    learner = build_server_learner(
        model=spec.model_description, method=resolve(spec.method), seed=1, initial=tmp_path / "vit.safetensors"
    )
    embedding = learner.initialise().arrays()["encoder.network.encoder.pos_embedding"]
    wanted = models.vision_transformer.interpolate_embeddings(64, 16, large.state_dict())["encoder.pos_embedding"]
    torch.testing.assert_close(torch.from_numpy(embedding.copy()), wanted, rtol=0, atol=0)
