"""What a run on this machine and a federation in a cluster have in common: one suite over both sources, on the same state of a server."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pytest
import yaml
from fake_api.server import FakeApi, Ran

from anchorage.api.errors import AnchorageError, commands, storage
from anchorage.api.files import Study
from anchorage.api.inference import read_inference
from anchorage.api.model_card import CARD, TrainedModel
from anchorage.api.run import RunDescription
from anchorage.api.status import (
    CheckpointStatus,
    Condition,
    FederationStatus,
    Metric,
    SiloStatus,
    StoredModel,
    timestamp,
)
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.store.journal import Entry, Journal
from anchorage.methods import validate_study
from anchorage.methods.model_card import make_card, write_card
from anchorage.methods.resolution import resolve
from anchorage.transport.pki import Authority, SigningRequest, key_fingerprint, new_key, silo_uri
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors, write_safetensors
from anchorage_server import read
from fedctl.choice import Place, in_cluster
from fedctl.local_source import LocalSource
from fedctl.model_pull import pull_model
from fedctl.output import Format
from fedctl.report import write_report
from fedctl.source import ModelFile, Source
from fedctl.workdir import Workdir

FEDERATION = {
    "apiVersion": "anchorage.dev/v1alpha1",
    "kind": "Federation",
    "metadata": {"name": "tiny"},
    "spec": {
        "rounds": 4,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1},
        "method": {"name": "FedAvg"},
        "evaluation": {"validation": {"format": "Digits", "use": "Test", "testPercent": 20}},
    },
}
SILOS = [
    {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": name},
        "spec": {
            "federation": "tiny",
            "labels": "All",
            "managed": {
                "data": {
                    "format": "Digits",
                    "use": "Part",
                    "testPercent": 20,
                    "partition": {"recipe": "Iid", "parts": 2, "part": part},
                }
            },
        },
    }
    for part, name in enumerate("ab")
]
LOG = [json.dumps({"time": "12:00", "level": "INFO", "message": f"line {number}"}) for number in range(5)]
LAYOUT = Layout.of([("w", "F32", (70_000,)), ("n", "I64", ())])


class World(Protocol):
    """A place where the federation runs."""

    source: Source
    server: Path

    def publish(self, status: FederationStatus) -> None:
        """Make a status known."""


@dataclass
class Here:
    """A run in a working folder that nobody runs now."""

    run: Workdir

    def __post_init__(self) -> None:
        self.run.make()
        self.run.federation.write_text(yaml.safe_dump_all([FEDERATION, *SILOS]))
        self.run.log("server").write_text("\n".join(LOG) + "\n")
        self.run.log("a").write_text("hello\n")
        self.server = self.run.server
        self.source: Source = LocalSource(self.run)

    def publish(self, status: FederationStatus) -> None:
        self.run.status.write_text(status.model_dump_json(by_alias=True))


@dataclass
class InCluster:
    """Objects at an API server, and a pod whose state is a folder."""

    fake: FakeApi
    server: Path
    source: Source

    def publish(self, status: FederationStatus) -> None:
        (self.server / "status.json").write_text(status.model_dump_json(by_alias=True))
        values = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.fake.put("federations", {**FEDERATION, "status": values})
        for document in SILOS:
            silo_status = next(silo for silo in status.silos if silo.name == document["metadata"]["name"])
            expected_status = silo_status.model_dump(
                mode="json", by_alias=True, exclude_none=True, exclude={"name", "connected"}
            )
            conditions = [met("Approved", "True", "Managed"), met("Connected", str(silo_status.connected), "Connected")]
            self.fake.put("silos", {**document, "status": {**expected_status, "conditions": conditions}})


def met(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": timestamp(1.8e9)}


@pytest.fixture(params=["local", "cluster"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "local":
        yield Here(Workdir(tmp_path / "run"))
        return
    state = tmp_path / "state"
    state.mkdir()

    def run(pod: str, command: Sequence[str]) -> Ran:
        assert pod == "tiny-server-0" and command[:5] == [
            "python3",
            "-m",
            "anchorage_server.read",
            "--state",
            "/var/lib/anchorage",
        ]
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = read.main(["--state", str(state), *command[5:]])
        return Ran(command, code, out.buffer.getvalue(), err.getvalue().encode())

    cluster_api: FakeApi = request.getfixturevalue("cluster_api")
    cluster_api.run = run
    for pod in ("tiny-server-0", "a-silo-0"):
        cluster_api.put("pods", {"metadata": {"name": pod}})
    cluster_api.logs = {"tiny-server-0": "\n".join(LOG) + "\n", "a-silo-0": "hello\n"}
    place = InCluster(cluster_api, state, in_cluster("tiny", Place()))
    place.publish(begun())
    yield place


def begun(**changes: Any) -> FederationStatus:
    """Give a federation that was interrupted after round 2."""
    known = FederationStatus(
        conditions=tuple(Condition.model_validate(met(kind, word, "Running"), by_alias=True) for kind, word in STATES),
        round=2,
        rounds=4,
        progress_percentage=50,
        silos=(
            SiloStatus(name="a", samples=718, weight="0.5", acceptance="0.25"),
            SiloStatus(name="b", code="ANC-3004", message="NaN"),
        ),
        metrics=(Metric(name="accuracy", value="0.75"),),
    )
    return known.model_copy(update=changes)


STATES = (("Ready", "False"), ("Succeeded", "Unknown"), ("Failed", "False"))


def model_of(number: int) -> ModelBytes:
    return ModelBytes.from_arrays(LAYOUT, {"w": np.full(70_000, number, np.float32), "n": np.array(number)})


def commit(world: World, rounds: int) -> None:
    """Leave a journal and the last checkpoint as a server does."""
    journal = Journal(world.server / "journal.jsonl")
    for number in range(rounds + 1):
        silos = (SiloRecord("a", "Counted", 1.0), SiloRecord("b", "Failed", code="ANC-3004", message="NaN"))
        record = RoundRecord(
            number, model_of(number).digest, 1.8e9 + number, {"accuracy": 0.25 * number}, silos if number else ()
        )
        journal.append(Entry(record))
    journal.close()
    folder = world.server / "checkpoints"
    folder.mkdir()
    path = folder / f"round-{rounds:06d}.safetensors"
    write_safetensors(path, model_of(rounds), arrays={"method_state/x": np.ones(2)})
    last = CheckpointStatus(round=rounds, path=str(path), digest=model_of(rounds).digest, time=timestamp(1.8e9))
    world.publish(begun(last_checkpoint=last))


def finish(world: World) -> None:
    """Leave the final and the best model as a server does."""
    folder = world.server / "model"
    folder.mkdir()
    described: dict[str, Any] = {"federation": "tiny"}
    stored = {}
    for name, number in (("final", 4), ("best", 3)):
        path, digest = folder / f"{name}.safetensors", model_of(number).digest
        write_safetensors(path, model_of(number))
        described[name] = {"file": path.name, "round": number, "digest": digest, "time": 1.8e9, "metrics": {}}
        stored[name] = StoredModel(path=str(path), digest=digest, round=number)
    (folder / "model.json").write_text(json.dumps(described))
    world.publish(begun(round=4, model=stored["final"], best_model=stored["best"]))


def test_the_status_is_the_servers(world: World) -> None:
    world.publish(begun())
    observed_status = world.source.observe()
    assert (observed_status.document["kind"], observed_status.document["metadata"]["name"]) == ("Federation", "tiny")
    assert (
        observed_status.document["spec"]["method"]["name"] == "FedAvg"
        and observed_status.document["status"]["round"] == 2
    )
    assert "managedFields" not in observed_status.document["metadata"] and not observed_status.live
    status = observed_status.status
    assert (status.round, status.rounds, status.progress_percentage, status.connected_silos) == (2, 4, 50, 0)
    assert status.metrics == (Metric(name="accuracy", value="0.75"),)
    assert {c.type for c in status.conditions} >= {"Ready", "Succeeded", "Failed"}
    json.dumps(observed_status.document)


def test_silos_are_rows_with_the_same_columns(world: World) -> None:
    world.publish(begun())
    first, second = world.source.silos()
    assert first.keys() >= {field.alias or name for name, field in SiloStatus.model_fields.items()}
    assert (first["name"], first["connected"], first["samples"], first["weight"]) == ("a", False, 718, "0.5")
    assert (first["acceptance"], second["acceptance"]) == ("0.25", "")
    assert (second["name"], second["code"], second["message"]) == ("b", "ANC-3004", "NaN")
    assert first["certificate"] is None


def test_a_silo_of_a_local_run_says_when_its_certificate_ends(tmp_path: Path) -> None:
    run, made = Workdir(tmp_path), Authority.make("derm", now=lambda: 1.8e9)
    state = run.silo("a") / "state"
    state.mkdir(parents=True)
    request = SigningRequest.make(new_key(state / "silo.key"), silo_uri("derm", "a"))
    (state / "silo.crt").write_bytes(made.issue_silo(request, "a"))
    run.federation.write_text("kind: Federation\nmetadata: {name: derm}\n")
    run.server.mkdir()
    run.status.write_text(begun().model_dump_json(by_alias=True))
    a, b = LocalSource(run).silos()
    assert a["certificate"] == {"notAfter": "2028-01-15T08:00:00Z", "key": key_fingerprint(request)}
    assert b["certificate"] is None


def test_rounds_are_the_journals_without_its_bookkeeping(world: World) -> None:
    world.publish(begun())
    assert list(world.source.rounds()) == []
    commit(world, 2)
    world.publish(begun(round=3))
    rounds = world.source.rounds()
    assert [record["round"] for record in rounds] == [0, 1, 2]
    assert rounds[2]["metrics"] == {"accuracy": 0.5} and rounds[2]["silos"][1]["code"] == "ANC-3004"
    assert rounds[2]["digest"] == model_of(2).digest and not {"checksum", "schemaVersion"} & rounds[2].keys()


def test_logs_are_read_from_their_end(world: World) -> None:
    world.publish(begun())
    assert {"server", "a"} <= set(world.source.processes())
    assert list(world.source.log("server", 2, follow=False)) == LOG[-2:]
    assert list(world.source.log("a", 50, follow=False)) == ["hello"]
    with pytest.raises(AnchorageError):
        world.source.log("z", 1, follow=False)


def test_a_followed_log_begins_with_what_is_there(world: World) -> None:
    world.publish(begun())
    lines = world.source.log("server", 3, follow=True)
    assert [next(lines) for _ in range(3)] == LOG[-3:]


def test_there_is_no_model_before_the_first_round(world: World) -> None:
    world.publish(begun())
    for best in (False, True):
        with pytest.raises(AnchorageError) as caught, world.source.model(best=best):
            pass
        assert caught.value.failure is commands.NO_MODEL_YET


def test_the_model_of_a_run_that_goes_on_is_the_last_checkpoint(world: World) -> None:
    commit(world, 2)
    for best in (False, True):
        with world.source.model(best=best) as model:
            assert (model.round, model.digest, model.description) == (2, model_of(2).digest, {})
            assert read_safetensors(model.path, LAYOUT).model.digest == model.digest


def test_the_model_before_any_training_is_no_result(world: World) -> None:
    commit(world, 0)
    with (
        pytest.raises(AnchorageError, match="no round of training is committed") as caught,
        world.source.model(best=False),
    ):
        pass
    assert caught.value.failure is commands.NO_MODEL_YET


def test_the_model_of_a_run_that_goes_on_after_its_end_is_not_that_of_the_end(world: World) -> None:
    commit(world, 5)
    finish(world)
    path = world.server / "checkpoints" / "round-000005.safetensors"
    last = CheckpointStatus(round=5, path=str(path), digest=model_of(5).digest, time=timestamp(1.8e9))
    world.publish(begun(round=5, last_checkpoint=last))
    for best in (False, True):
        with world.source.model(best=best) as model:
            assert (model.round, model.digest, model.description) == (5, model_of(5).digest, {})


@pytest.mark.parametrize(("best", "number"), [(False, 4), (True, 3)])
def test_a_finished_run_has_its_final_and_its_best_model(world: World, best: bool, number: int) -> None:
    commit(world, 4)
    finish(world)
    with world.source.model(best=best) as model:
        assert (model.round, model.digest) == (number, model_of(number).digest)
        assert read_safetensors(model.path).model.digest == model.digest
        assert model.description["federation"] == "tiny" and model.description["best"]["round"] == 3
        assert "bytes" not in model.description["final"]


def test_the_model_card_is_there_once_the_run_is_over(world: World, tmp_path: Path) -> None:
    world.publish(begun())
    assert world.source.card() is None
    commit(world, 4)
    finish(world)
    study, described = (
        validate_study_of(tmp_path),
        TrainedModel(file="final.safetensors", digest="d", round=4, assessment=None),
    )
    spec = study.federation.spec
    about = RunDescription(
        federation="tiny", seed=1, model=spec.model_description, method=resolve(spec.method), down="{}", up="{}", rounds=4, mode="Synchronous"
    )  # fmt: skip
    history = [RoundRecord(4, "d", 1.8e9)]
    write_card(
        world.server / "model",
        make_card(study, about, history, {}, final=described, best=described, classifier_trained=True),
    )
    card = world.source.card()
    assert card is not None and (card.federation, card.rounds) == ("tiny", 4)
    page = write_report(world.source, tmp_path / "page.html").read_text()
    assert "Model card: tiny" in page and "<h1>tiny</h1>" in page
    (world.server / "model" / CARD).write_text("{}")
    with pytest.raises(AnchorageError) as caught:
        world.source.card()
    assert caught.value.failure is commands.NO_RESULTS


def validate_study_of(folder: Path) -> Study:
    (folder / "tiny.yaml").write_text(yaml.safe_dump_all([FEDERATION, *SILOS]))
    return validate_study(folder / "tiny.yaml")


def test_pulling_gives_the_same_files(world: World, tmp_path: Path) -> None:
    commit(world, 4)
    finish(world)
    pull_model(world.source, tmp_path / "out", False, False, Format.JSON)
    pulled = read_safetensors(tmp_path / "out" / "model.safetensors").model
    described = json.loads((tmp_path / "out" / "model.json").read_text())
    assert pulled.digest == described["final"]["digest"] == model_of(4).digest and described["federation"] == "tiny"
    assert described["final"]["file"] == "model.safetensors" and "best" not in described


def test_of_a_run_that_goes_on_the_network_alone_is_pulled(tmp_path: Path) -> None:
    layout = Layout.of([("w", "F32", (2,)), ("control.w", "F32", (2,))])
    arrays = {"w": np.ones(2, np.float32), "control.w": np.zeros(2, np.float32)}
    made = ModelBytes.from_arrays(layout, arrays)
    write_safetensors(
        tmp_path / "round", made, arrays={"method_state/m": np.zeros(1)}, metadata={"digest": made.digest}
    )
    source = SimpleNamespace(
        model=lambda best: nullcontext(ModelFile(tmp_path / "round", made.digest, 3, {})),
        observe=lambda: SimpleNamespace(document=FEDERATION),
        rounds=lambda: [],
    )
    pull_model(source, tmp_path / "out", False, False, Format.JSON)  # type: ignore[arg-type]
    layout, metadata = read_description(tmp_path / "out" / "model.safetensors")
    assert list(layout.by_name) == ["w"] and metadata["digest"] == made.of_network().digest
    described = json.loads((tmp_path / "out" / "model.json").read_text())
    assert (described["checkpoint"]["digest"], described["checkpoint"]["round"]) == (metadata["digest"], 3)
    assert read_inference(tmp_path / "out" / "model.json").outputs == tuple("0123456789")


def test_a_damaged_model_is_not_pulled(world: World, tmp_path: Path) -> None:
    commit(world, 4)
    finish(world)
    write_safetensors(world.server / "model" / "final.safetensors", model_of(2))
    with pytest.raises(AnchorageError) as caught:
        pull_model(world.source, tmp_path / "out", False, False, Format.JSON)
    assert caught.value.failure is storage.TENSOR_FILE_UNUSABLE and not (tmp_path / "out").exists()
