"""Many silos in one process: what is shared between them, what travels, what is found again, and silos beside each other."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError, commands, data
from anchorage.api.files import Study
from anchorage.engine.events import tell_all
from anchorage.engine.interfaces import RoundRecord
from anchorage.methods import validate_study
from anchorage.transport.messages import Announcement, AuxiliaryData, Profile, Report
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.null_learner import NullLearner

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from anchorage.engine.store import DiskStore, HeldUpdates, Identity, MemoryStore, RoundStore, SpareUpdates
from anchorage.simulation.run import Rounds, Simulation, simulate

LAYOUT = Layout.of([("w", "F32", (CHUNK_BYTES // 2,)), ("steps", "I64", ())])  # three chunks
DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 2
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1, augmentation: Digits}
  method: {name: FedAvg, local: {epochs: 1, batchSize: 16}}
  protocol: {silosPerRound: 3}
---
kind: Silo
metadata: {name: a}
spec: {federation: tiny, labels: All, managed: {data: {format: Digits, use: Part, partition: {recipe: Iid, parts: 2}}}}
"""


class Null:
    """A server that keeps the mean (`ServerLearner`)."""

    down = up = LAYOUT

    def initialise(self) -> ModelBytes:
        return ModelBytes.from_arrays(LAYOUT, {"w": np.arange(CHUNK_BYTES // 2, dtype="f4"), "steps": np.array(1)})

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        return {}

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        return model, {}

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        return Report({})

    def test(self, model: ModelBytes, round_number: int) -> Report:
        return Report({})


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    (tmp_path / "tiny.yaml").write_text(DOCUMENTS)
    return lambda silos=6, *overrides: validate_study(tmp_path / "tiny.yaml", overrides, silos)


def play_null(study: Study, store: RoundStore, spare: SpareUpdates, step: float = 0.5) -> RoundRecord:
    profiles = {silo.metadata.name: Profile("All", 5, "test") for silo in study.silos}
    learner = NullLearner(LAYOUT, LAYOUT, step, 5)
    return Rounds(study, Null(), profiles, lambda silo: learner, store, spare, tell_all()).play()


def test_a_silo_is_sent_what_it_has_not_and_memory_is_used_again(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashed(buffer: Any) -> tuple[bytes, ...]:
        raise AssertionError("an update that does not travel needs no digests")

    monkeypatch.setattr("anchorage.transport.tensors.chunks.chunk_digests", hashed)
    spare = SpareUpdates()
    store = MemoryStore(spare)
    play_null(study(6, "spec.rounds=8"), store, spare)
    moved = [(record.bytes_down, record.bytes_up) for record in store.history()[1:]]
    assert moved[0] == (3 * LAYOUT.nbytes, 3 * LAYOUT.nbytes) and {up for _, up in moved} == {3 * LAYOUT.nbytes}
    assert len(spare._spare) == 3
    quiet = MemoryStore(spare)
    play_null(study(6, "spec.rounds=8"), quiet, spare, step=0.0)
    assert sum(record.bytes_down for record in quiet.history()) == 6 * LAYOUT.nbytes  # every silo once
    assert float(store.latest().model.arrays()["w"][1]) == 1 + 8 * 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize(("fit", "files"), [(3, 0), (2, 1), (0, 3)])
def test_updates_beyond_the_memory_lie_in_files_without_a_name(
    study: Callable[..., Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: int, files: int
) -> None:
    in_memory, made = MemoryStore(), list[None]()
    play_null(study(6, "spec.rounds=4"), in_memory, SpareUpdates())
    (tmp_path / "updates").mkdir()
    spare = SpareUpdates(tmp_path / "updates", most_bytes=fit * LAYOUT.nbytes)
    make_room = os.posix_fallocate
    monkeypatch.setattr("os.posix_fallocate", lambda *place: made.append(make_room(*place)))
    beyond = MemoryStore(spare)
    play_null(study(6, "spec.rounds=4"), beyond, spare)
    assert [record.digest for record in beyond.history()] == [record.digest for record in in_memory.history()]
    assert len(made) == files and not list((tmp_path / "updates").iterdir())


def test_an_update_without_room_on_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnchorageError, match="StateNotWritable: cannot make room for an update"):
        SpareUpdates(tmp_path / "missing", most_bytes=0).take(8)


def test_a_round_is_found_again(study: Callable[..., Study], tmp_path: Path) -> None:
    def opened() -> DiskStore:
        return DiskStore(tmp_path / "rounds", Identity({}, (LAYOUT,)), updates=HeldUpdates(), sync=False)

    uncut = MemoryStore()
    play_null(study(6, "spec.rounds=4"), uncut, SpareUpdates())
    with closing(opened()) as store:
        play_null(study(), store, SpareUpdates())
    with (tmp_path / "rounds" / "journal.jsonl").open("a") as torn:
        torn.write('{"round": 3, "di')
    with closing(opened()) as open_again:
        latest = open_again.latest()
        assert latest is not None and latest.record.round == 2
        assert latest.model.digest == latest.record.digest == uncut.history()[2].digest
        record = play_null(study(6, "spec.rounds=4"), open_again, SpareUpdates())
    assert record.digest == uncut.history()[4].digest
    with closing(opened()) as open_again:
        assert [entry.round for entry in open_again.history()] == [0, 1, 2, 3, 4]


def test_a_simulation_goes_on_with_its_own_rounds_or_begins_anew(study: Callable[..., Study], tmp_path: Path) -> None:
    def resumed(*overrides: str) -> Simulation:
        return Simulation(study(6, *overrides), tmp_path, tmp_path / "state", resume=True)

    first = resumed()
    digest = first.play().digest
    resumed_again = resumed("spec.deletionPolicy=Delete")
    assert len(resumed_again.store.history()) == 3 and resumed_again.play().digest == digest
    damage(next((tmp_path / "state" / "rounds" / "checkpoints").glob("round-000002.*")))
    back = resumed()
    assert len(back.store.history()) == 2 and back.play().digest == digest
    for path in (tmp_path / "state" / "rounds" / "checkpoints").glob("round-*"):
        damage(path)
    begun = resumed()
    assert begun.store.history() == () and begun.play().digest == digest
    other = resumed("spec.protocol.silosPerRound=2")
    assert other.store.history() == (), "other silos would have been drawn"
    other.store.close()


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_images_are_opened_when_their_silo_is_drawn_first(
    study: Callable[..., Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anchorage.simulation import images

    decode, opened = images.decode_listing, []
    monkeypatch.setattr(images, "decode_listing", lambda *a, **k: opened.append(1) or decode(*a, **k))
    many = Simulation(study(60), tmp_path, tmp_path / "state")
    assert opened == []
    many.play()
    assert 3 <= len(opened) <= 6


def test_images_that_cannot_be_used_end_the_simulation(study: Callable[..., Study], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "images" / name / f"{name}{number}.png").write_bytes(b"no image")
    place = "silo.spec.managed.data."
    broken = study(
        2, f"{place}format=ImageFolder", f"{place}claimName=images", "spec.task.classification.classes=[a, b]", *ALL
    )
    with pytest.raises(AnchorageError, match="^ANC-1203 BadImages: silo a-[01]: ") as caught:
        simulate(broken, tmp_path, tmp_path / "state")
    assert caught.value.failure is data.BAD_IMAGES


def test_labels_that_are_missing_end_the_simulation_as_they_end_an_agent(
    study: Callable[..., Study], tmp_path: Path
) -> None:
    part = "silo.spec.managed.data.partition.labelledPerClass=1"
    with pytest.raises(AnchorageError, match=r"ANC-2230.*silo a-0 has labels: All, but \d+ of \d+ images have none"):
        simulate(study(2, part, *ALL), tmp_path, tmp_path / "state")


ALL = ("spec.protocol.silosPerRound=2",)


class FakeRay(SimpleNamespace):
    """Ray without a cluster: actors are objects of this process."""

    class RayError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__(exceptions=SimpleNamespace(RayError=self.RayError), actors=[], lost=False, down=0)

    def init(self, **options: Any) -> None:
        if options.get("address") == "nowhere:1":
            raise ConnectionError("Could not find any running Ray instance.\nmore")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **options: Any) -> Callable[[type], Any]:
        def actor_class(kind: type) -> Any:
            def make(*arguments: Any) -> Any:
                self.actors.append(kind(*arguments))
                held = self.actors[-1]
                calls = {name: SimpleNamespace(remote=getattr(held, name)) for name in ("prepare", "train", "evaluate")}
                return SimpleNamespace(**calls)

            return SimpleNamespace(remote=make)

        return actor_class

    def get(self, answer: Any) -> Any:
        if self.lost and isinstance(answer[0], tuple) and isinstance(answer[0][0], Announcement):
            raise self.RayError("The actor died.\nIt was killed.")
        return answer

    def put(self, array: Any) -> Any:
        return array

    def shutdown(self) -> None:
        self.down += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.mark.parametrize("method", ["FedAvg", "DVW", "SCAFFOLD", "SOLO"])
def test_silos_beside_each_other_reach_the_model_of_one_after_another(
    method: str, study: Callable[..., Study], tmp_path: Path
) -> None:
    documents = study(6, f"spec.method.name={method}", "spec.protocol.silosPerRound=4")
    alone, _ = simulate(documents, tmp_path, tmp_path / "alone")
    parallel = Simulation(documents, tmp_path, tmp_path / "beside", at_once=3).play()
    assert parallel.digest == alone.digest


def test_a_defect_in_a_lane_is_raised_as_it_is(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("anchorage.learning.silo_learner.TorchSiloLearner.train", broken)
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError, match="a defect"):
        Simulation(study(4), tmp_path, tmp_path / "state", at_once=2).play()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("method", ["FedAvg", "DVW"])
def test_actors_reach_the_model_of_one_process(
    method: str, study: Callable[..., Study], ray: FakeRay, tmp_path: Path
) -> None:
    documents = study(6, f"spec.method.name={method}", "spec.protocol.silosPerRound=3")
    alone, _ = simulate(documents, tmp_path, tmp_path / "alone")
    spread = Simulation(documents, tmp_path, tmp_path / "spread", ray="local").play()
    assert spread.digest == alone.digest and len(ray.actors) == 2 and ray.down == 1


def test_a_cluster_that_fails_is_named(study: Callable[..., Study], ray: FakeRay, tmp_path: Path) -> None:
    with pytest.raises(AnchorageError, match=r"nowhere:1: Could not find any running Ray instance\.$") as caught:
        Simulation(study(), tmp_path, tmp_path / "state", ray="nowhere:1")
    assert caught.value.failure is commands.RAY_FAILED
    with pytest.raises(AnchorageError, match="leave --ray out"):
        Simulation(
            study(6, "spec.protocol={mode: Asynchronous}", "spec.method.name=AsyncFedAvg"),
            tmp_path,
            tmp_path,
            ray="local",
        )
    ray.lost = True
    with pytest.raises(AnchorageError, match="actor of silo .* It was killed"):
        Simulation(study(), tmp_path, tmp_path / "state", ray="local").play()


def test_without_ray_the_extra_is_named(
    study: Callable[..., Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AnchorageError, match=r"anchorage\[ray\]") as caught:
        Simulation(study(), tmp_path, tmp_path / "state", ray="local")
    assert caught.value.failure is commands.PACKAGE_MISSING
