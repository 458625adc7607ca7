"""docs/using-a-model.md as printed, on the recorded model; a registered model in processes that cannot import this project."""

import base64
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from bright_model import untrained
from printed_pages import ROOT, SECONDS, environment_in, python, serving, sh, without_anchorage_in
from printed_pages import blocks as printed

from anchorage.api.inference import describe
from anchorage.api.model import ModelDescription
from anchorage.engine.tracking import Outbox, TrackedRun
from anchorage.engine.tracking.sender import Sending
from anchorage.learning.weights import layout_of
from anchorage.methods import validate_study
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import write_safetensors

GOLDEN = ROOT / "tests" / "golden" / "model"
PAGE = "using-a-model.md"
WANTED = {
    Path(prediction["image"]).name: prediction["probabilities"]
    for prediction in json.loads((GOLDEN / "predictions.json").read_text())["predictions"]
}


def blocks(heading: str, language: str) -> list[str]:
    """Return the page's code under a heading."""
    return printed(PAGE, heading, language)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it is after a run of examples/digits.yaml, with pictures."""
    folder = tmp_path_factory.mktemp("place")
    run = folder / ".anchorage" / "digits"
    (run / "server").mkdir(parents=True)
    shutil.copyfile(ROOT / "examples" / "digits.yaml", run / "federation.yaml")
    models = Path(shutil.copytree(GOLDEN, run / "server" / "model", ignore=shutil.ignore_patterns("images")))
    stored = json.loads((models / "model.json").read_text())["final"]
    spec = validate_study(run / "federation.yaml").federation.spec
    # the golden file is of the first format; a run writes this
    description = describe(spec.model_description, "digits", classifier_trained=True)
    (models / "model.json").write_text(json.dumps({**description, "final": stored, "best": stored}))
    model = {"path": str(models / stored["file"]), "digest": stored["digest"], "round": stored["round"]}
    status = {"round": stored["round"], "rounds": stored["round"], "model": model, "bestModel": model}
    (run / "server" / "status.json").write_text(json.dumps(status))
    shutil.copytree(GOLDEN / "images", folder / "images")
    shutil.copyfile(GOLDEN / "images" / "three-transparent.png", folder / "scan.png")
    tracked = TrackedRun(
        Outbox(run / "outbox"),
        federation="digits",
        experiment="digits",
        registered_model="digits",
        rounds=3,
        task=spec.task,
        parameters={},
        document=yaml.safe_dump({"kind": "Federation"}),
    )
    tracked.finish("", models)
    Sending(run / "outbox", f"sqlite:///{run / 'mlflow.db'}").send_all()
    return folder


@pytest.fixture(scope="module")
def environment(place: Path) -> Mapping[str, str]:
    return environment_in(place)


@pytest.fixture(scope="module")
def without_anchorage(environment: Mapping[str, str], place: Path) -> Mapping[str, str]:
    """An environment in which an import of this project fails."""
    return without_anchorage_in(place, environment)


def close(probabilities: Mapping[str, float], image: str = "three-transparent.png", tolerance: float = 1e-3) -> bool:
    return dict(probabilities) == pytest.approx(WANTED[image], abs=tolerance)


def test_the_command_line(place: Path, environment: Mapping[str, str]) -> None:
    (script,) = blocks("On the command line", "sh")
    one, many, show = script.strip().splitlines()
    assert sh(one, place, environment).split()[-3:] == ["scan.png", "3", f"{WANTED['three-transparent.png']['3']:.4f}"]
    predictions = json.loads(sh(many, place, environment))["predictions"]
    assert [Path(prediction["image"]).name for prediction in predictions] == list(WANTED)
    assert all(close(prediction["probabilities"], Path(prediction["image"]).name) for prediction in predictions)
    sh(show, place, environment)
    assert (place / "pictures" / "0000-scan.png").exists()


def test_the_files_and_programs(
    place: Path, environment: Mapping[str, str], without_anchorage: Mapping[str, str]
) -> None:
    """The snippets read images without transparency, so they get one."""
    shutil.copyfile(GOLDEN / "images" / "two.png", place / "scan.png")
    try:
        for script in blocks("The files", "sh"):
            sh(script, place, environment)
        assert (place / "digits-model" / "model.safetensors").read_bytes()
        for heading in ("Plain torch", "ONNX Runtime"):
            (program,) = blocks(heading, "python")
            assert close(python(program, place, without_anchorage), "two.png")
    finally:
        shutil.copyfile(GOLDEN / "images" / "three-transparent.png", place / "scan.png")


def test_the_bundle_of_a_model_of_volumes(place: Path, environment: Mapping[str, str]) -> None:
    """What is in the bundle is the subject of tests/unit/learning; here the printed command finds a model and writes one."""
    pytest.importorskip("monai", reason="MONAI is not installed")
    task = {"segmentation": {"classes": ("background", "tumour")}}
    volume = {"spacing": ("1", "1", "1"), "patch": (16, 16, 16)}
    fields = {"network": "SmallUNet", "channels": 1, "task": task, "volume": volume, "intensity": {"zScore": {}}}
    described, network = untrained(ModelDescription.model_validate(fields), "brains")
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    weights = ModelBytes.from_arrays(layout_of(network), arrays)
    (place / "brains").mkdir()
    write_safetensors(place / "brains" / "model.safetensors", weights)
    final = {"file": "model.safetensors", "digest": weights.digest, "round": 1}
    (place / "brains" / "model.json").write_text(json.dumps({**described, "final": final}))
    (script,) = blocks("MONAI", "sh")
    sh(script, place, environment)
    with zipfile.ZipFile(place / "brains.zip") as bundle:
        assert json.loads(bundle.read("bundle/models/model.json"))["federation"] == "brains"


def test_a_registered_model_in_python(place: Path, without_anchorage: Mapping[str, str]) -> None:
    (program,) = blocks("MLflow", "python")
    path, content, _array = python(program, place, without_anchorage)
    assert path == content and path["class"] == "3" and close(path["probabilities"])


@pytest.fixture(scope="module")
def request_file(place: Path, without_anchorage: Mapping[str, str]) -> Path:
    lines = blocks("MLflow", "sh")[0].splitlines()
    sh("\n".join(lines[:2]), place, without_anchorage)
    return place / "request.json"


def test_mlflow_models_predict(place: Path, without_anchorage: Mapping[str, str], request_file: Path) -> None:
    script = blocks("MLflow", "sh")[0].rstrip() + " --output-path answer.json"
    sh(script, place, without_anchorage)
    (prediction,) = json.loads((place / "answer.json").read_text())["predictions"]
    assert prediction["class"] == "3" and close(prediction["probabilities"])


@pytest.fixture(scope="module")
def server(place: Path, without_anchorage: Mapping[str, str]) -> Iterator[str]:
    """`mlflow models serve` as printed, on a free port."""
    export, command = blocks("MLflow", "sh")[0].splitlines()[0], blocks("MLflow", "sh")[1]
    with serving(f"{export}\n{command}", "5001", place, without_anchorage) as port:
        yield port


def test_mlflow_models_serve(
    place: Path, without_anchorage: Mapping[str, str], request_file: Path, server: str
) -> None:
    answer = sh(blocks("MLflow", "sh")[2].replace("5001", server), place, without_anchorage)
    (prediction,) = json.loads(answer)["predictions"]
    assert prediction["class"] == "3" and close(prediction["probabilities"])


def ask(port: str, body: Any) -> Any:
    request = Request(
        f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)["predictions"]


def test_a_server_takes_texts_and_arrays(server: str) -> None:
    images = [base64.b64encode((GOLDEN / "images" / name).read_bytes()).decode() for name in WANTED]
    for body in (
        {"inputs": {"image": images}},
        {"dataframe_split": {"columns": ["image"], "data": [[i] for i in images]}},
    ):
        for prediction, name in zip(ask(server, body), WANTED, strict=True):
            assert close(prediction["probabilities"], name)
    grey = [[(3 * x + 5 * y) % 256 for x in range(20)] for y in range(30)]
    rgb = [[[value] * 3 for value in row] for row in grey]
    planes = [grey] * 3
    first, second, third = ask(server, {"dataframe_records": [{"image": image} for image in (grey, rgb, planes)]})
    assert second == third
    assert first["probabilities"] == pytest.approx(second["probabilities"], abs=1e-2)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (str(GOLDEN / "images" / "zero.png"), "not base64"),
        (base64.b64encode(b"no image").decode(), "no image format"),
        ([[300, 0], [0, 0]], "0 to 255"),
        ([[1, 2], [3]], "differ in length"),
        (None, "allowed are bytes"),
    ],
)
def test_a_server_reads_no_files_of_its_own_and_says_what_is_wrong(server: str, image: Any, words: str) -> None:
    good = base64.b64encode((GOLDEN / "images" / "zero.png").read_bytes()).decode()
    with pytest.raises(HTTPError) as caught:
        ask(server, {"dataframe_records": [{"image": good}, {"image": image}]})
    answer = caught.value.read().decode()
    caught.value.close()
    assert caught.value.code == 400 and "row 1" in answer and words in answer
