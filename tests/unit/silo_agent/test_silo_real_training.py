import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_images import shade
from real_silo import METHOD, MODEL, Silo, setup_of
from silo_fakes import WAIT_SECONDS, changed_setup

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.method import MethodSpec
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.learning.data import read
from anchorage.learning.data.held_out import describe_held_out
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve
from anchorage.transport.messages import Announcement, Assigned, Permit, Task, TaskKind
from anchorage.transport.retry import RetryPolicy
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.large_arrays import LargeArrays, joined_behind
from anchorage.transport.tensors.layout import NOTHING, Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo import trainer_process
from anchorage_silo.frames import Setup
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.trainer import build_learner
from anchorage_silo.trainer_process import TrainerProcess


@pytest.fixture(scope="module")
def initial() -> ModelBytes:
    return build_server_learner(model=MODEL, method=METHOD, seed=5).initialise()


@pytest.fixture
def silo_of() -> Iterator[Callable[..., Silo]]:
    silos = []

    def make(*args: object) -> Silo:
        silos.append(Silo(*args))  # type: ignore[arg-type]
        return silos[-1]

    yield make
    for silo in silos:
        silo.trainer.close()


@pytest.mark.integration
@pytest.mark.parametrize("release", ["Never", "BetweenRounds"])
def test_a_killed_trainer_changes_nothing_in_the_result(
    release: str, tmp_path: Path, initial: ModelBytes, silo_of: Callable[..., Silo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_process, "RESTART", RetryPolicy(0.001))
    killed: set[str] = set()

    def kill(silo: Silo, task: str) -> None:
        if task not in killed and silo.trainer.pid is not None:
            killed.add(task)
            os.kill(silo.trainer.pid, signal.SIGKILL)

    calm = silo_of(setup_of(tmp_path / "calm", initial))
    disturbed = silo_of(setup_of(tmp_path / "disturbed", initial), kill, release)
    assert 200 < calm.samples < 240
    for number in (1, 2):
        assert (disturbed.trainer.pid is None) is (release == "BetweenRounds")
        expected, actual = calm.round(number, initial), disturbed.round(number, initial)
        assert expected[0].update == actual[0].update
        assert expected[1] == actual[1]
        assert len(actual[1]) == number * initial.layout.nbytes
        assert expected[0].samples["train"] == calm.samples
    assert killed == {"1.train", "2.train"}
    assert calm.link.updates["1.train"] != calm.link.updates["2.train"]


@pytest.mark.integration
def test_large_auxiliary_data_passes_through_the_files_that_trainer_and_agent_share(
    tmp_path: Path, initial: ModelBytes, silo_of: Callable[..., Silo]
) -> None:
    method = resolve(MethodSpec.model_validate({"name": "FedMix", "local": {"epochs": 1}}))
    silo, model_bytes = silo_of(setup_of(tmp_path / "a", initial, method=method)), initial.layout.nbytes

    def play(number: int, source: ChunkSource, behind: Layout, **wanted: bool) -> tuple[Announcement, bytes]:
        means = {f"means_{name}": np.array([value], np.uint8) for name, value in wanted.items()}
        task = Task(f"{number}.train.{source.manifest.digest}", TaskKind.TRAIN, number, source.manifest, means, behind)
        silo.link.models[source.manifest.digest] = source
        silo.worker.handle(Assigned(task))
        silo.worker.handle(Permit(task.id))
        return silo.link.announcements[task.id], silo.link.updates[task.id]

    means, sent = play(1, initial, NOTHING, wanted=True, alone=True)
    assert not means.trained and len(sent) == means.behind.nbytes > 0
    plain, update = play(2, initial, NOTHING, wanted=False)
    assert len(update) == model_bytes and not plain.auxiliary
    joined, both = play(3, initial, NOTHING, wanted=True)
    assert both[model_bytes:] == sent and joined.auxiliary == means.auxiliary == {"mean_images", "mean_labels"}
    pool = LargeArrays(means.behind, ModelBytes.of(means.behind, np.frombuffer(sent, np.uint8)))
    mixed, update = play(4, *joined_behind(initial, [pool]), wanted=False)
    assert len(update) == model_bytes and not mixed.auxiliary
    assert update != play(4, initial, NOTHING, wanted=False)[1], "the pool was mixed in"
    assert play(5, initial, NOTHING, wanted=True)[1][model_bytes:] == sent, "the file is longer again"


def test_images_without_the_labels_they_should_have_are_refused(tmp_path: Path, initial: ModelBytes) -> None:
    (tmp_path / "flat").mkdir()
    for number in range(3):
        shade(number).save(tmp_path / "flat" / f"{number}.png")
    section = SiloData(format="ImageFolder", claim_name="flat")
    setups = [setup_of(tmp_path / labels, initial, labels, section) for labels in ("All", "Partial")]
    first, second = [changed_setup(setup, dataRoot=str(tmp_path)) for setup in setups]
    trainer = TrainerProcess(first)
    with pytest.raises(AnchorageError, match="ANC-2230.*3 of 3 images"):
        trainer.start()
    trainer.close()
    with pytest.raises(AnchorageError, match="ANC-2230.*3 of 3 images"):
        build_learner(second)


def folder_of(path: Path, pixels: range) -> Path:
    """Write grey images of one colour each, into a folder per class in turn."""
    for number in pixels:
        place = path / "01"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        shade(number).save(place / f"{number}.png")
    return path


def read_by_trainer(setup: Setup) -> tuple[int, str]:
    """Read the images as a trainer process does when it starts, and return their number and fingerprint."""
    _, samples, fingerprint = build_learner(setup)
    assert fingerprint is not None
    return samples, fingerprint.digest


def test_images_that_changed_since_training_began_are_refused_unless_allowed(
    tmp_path: Path, initial: ModelBytes
) -> None:
    folder = folder_of(tmp_path / "site", range(60))
    section = SiloData(format="ImageFolder", claim_name="site", on_change="Refuse")
    setup = changed_setup(setup_of(tmp_path / "state", initial, "All", section), dataRoot=str(tmp_path))
    allowing = changed_setup(setup, data={**setup.plain["data"], "onChange": "Allow"})
    (folder / "0" / "0.png").unlink()
    trained = read_by_trainer(setup)  # nothing is trained yet, so images may still change
    folder_of(folder, range(60))
    silo = Silo(setup)
    try:
        assert silo.samples == trained[0] + 1 == 60 and silo.fingerprint != trained[1]
        silo.round(1, initial)
    finally:
        silo.trainer.close()
    for number in range(0, 50, 2):
        (folder / "0" / f"{number}.png").unlink()
    with pytest.raises(AnchorageError, match=r"ANC-1212.*silo a.*: 0 5 \(were 30\).*onChange: Allow"):
        read_by_trainer(setup)
    assert read_by_trainer(allowing)[0] == 35
    folder_of(folder, range(60))
    assert read_by_trainer(setup) == read_by_trainer(allowing) == (60, silo.fingerprint)


def test_images_that_the_federation_is_scored_on_are_refused_or_left_out(tmp_path: Path, initial: ModelBytes) -> None:
    folder_of(tmp_path / "site", range(6))
    folder_of(tmp_path / "scored", range(4, 9))
    scored, _ = read(ServerData(format="ImageFolder", claim_name="scored"), tmp_path, MODEL, 5)
    section, key = SiloData(format="ImageFolder", claim_name="site"), bytes(range(32))
    for treatment, samples in (("Allow", 6), ("Skip", 4), ("Refuse", None)):
        held_out = describe_held_out([scored], key, treatment)  # type: ignore[arg-type]
        setup = setup_of(tmp_path / treatment, initial, "None", section)
        run = RunDescription.model_validate_json(setup.run).model_copy(
            update={"held_out": held_out, "data_key": key.hex()}
        )
        changed = changed_setup(setup, run=run.to_json(), dataRoot=str(tmp_path))
        if samples is None:
            with pytest.raises(AnchorageError, match=r"ANC-1211.*silo a: 2 of 6 images.*4.png"):
                read_by_trainer(changed)
        else:
            assert read_by_trainer(changed)[0] == samples


def test_a_replaced_training_leaves_no_trace(tmp_path: Path, initial: ModelBytes, silo_of: Callable[..., Silo]) -> None:
    """A task that was stopped in the middle does not touch what the silo carries from round to round."""
    calm = silo_of(setup_of(tmp_path / "calm", initial))
    expected = calm.round(2, initial)[0].update

    started = threading.Event()
    silo = silo_of(setup_of(tmp_path / "stopped", initial), lambda silo, task: started.set())
    link, model = silo.link, initial
    link.models[model.digest] = model
    link.permit_at_once = True
    worker = SiloWorker(link, silo.trainer, MappedBuffers(tmp_path / "stopped"), threads=True)
    runner = threading.Thread(target=worker.run)
    runner.start()
    link.assign(Task("1.train", TaskKind.TRAIN, 1, model.manifest))
    assert started.wait(WAIT_SECONDS)
    link.assign(Task("2.train", TaskKind.TRAIN, 2, model.manifest, repetitions=2))
    link.await_said("push", "2.train")
    link.close()
    runner.join(WAIT_SECONDS)
    worker.stop()
    worker.join()
    assert "1.train" not in link.announcements
    assert link.announcements["2.train"].update == expected


def test_as_many_threads_calculate_as_the_configuration_says_and_give_the_same_bits(
    tmp_path: Path, initial: ModelBytes
) -> None:
    used, updates = set(), []
    for name in ("a", "b"):
        learner, *_ = build_learner(changed_setup(setup_of(tmp_path / name, initial), threads=2))
        buffers = MemoryBuffers()

        def progress(done: int, total: int) -> int:
            used.add(torch.get_num_threads())
            return 0

        learner.train(Task("1.train", TaskKind.TRAIN, 1, initial.manifest), initial.buffer(), buffers.update, progress)
        updates.append(buffers.update(initial.layout.nbytes).tobytes())
    build_learner(setup_of(tmp_path / "one", initial))  # the default again, for other tests of this process
    assert used == {2} and updates[0] == updates[1]
