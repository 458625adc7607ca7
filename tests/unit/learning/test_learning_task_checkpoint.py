"""Training that another process began: the same bytes, and little of it done twice."""

from dataclasses import replace

import numpy as np
import pytest
from learning_party import CLASSES, Party, given, method_of

from anchorage.learning import task_checkpoint, views
from anchorage.learning.learners import Checkpointing
from anchorage.pieces.input_mixing.pool import Pooled
from anchorage.pieces.local_loss.task_loss import TaskLoss
from anchorage.pieces.slots import LocalLoss
from anchorage.transport.tensors.model import ModelBytes

LOCAL = {"epochs": 3, "batchSize": 8}
ALWAYS = Checkpointing(0, lambda: 0.0)
BATCH = 8 * 8 * 8
"""Values of a batch."""

RESUMING = [
    ("FedAvg", "All", {"local": {**LOCAL, "optimiser": {"adamW": {}}}}),
    ("FedAvg", "All", {"local": {**LOCAL, "accumulation": 2, "optimiser": {"sgd": {"state": "Persist"}}}}),
    ("FedAvg", "All", {"local": {**LOCAL, "steps": 7}}),
    ("FedAvgUDA", "Partial", {"local": {**LOCAL, "steps": 7}}),
    ("FedAvgM", "Partial", {"batchNorm": {"local": {}}}),
    ("FedProx", "All", {}),
    ("MOON", "All", {}),
    ("SCAFFOLD", "All", {}),
    ("FedMix", "All", {"inputMixing": {"groupSize": 2}}),
    ("FedRoDDual", "All", {}),
    ("DVW", "All", {}),
    ("FedAvgFixMatch", "Partial", {"pseudoLabels": {"threshold": "0.34"}}),
    ("FedProxUDA", "Partial", {"pseudoLabels": {"threshold": "0"}}),
    ("SAGE", "Partial", {"pseudoLabels": {"threshold": "0"}}),
    ("FedPerl", "Partial", {"pseudoLabels": {"threshold": "0"}}),
    ("FedAnchorNoMixup", "None", {"pseudoLabels": {"threshold": "0"}}),
]
ANEW = [
    ("FedAnchor", "None", {"pseudoLabels": {"threshold": "0"}}),
    ("FedCon", "None", {}),
    ("SSILCDM", "None", {"pseudoLabels": {"threshold": "0"}}),
]


class KilledError(Exception):
    """The trainer process ends."""


def party(folder, name, labels, slots, checkpointing=ALWAYS):
    method = method_of(name, **{"local": LOCAL, **slots})
    return Party(method, given(labels), folder, labels=labels, checkpointing=checkpointing)


def trained(silo, number, stop=None, tick=lambda: None):
    """What a round gives: bytes of the update, the announcement and what the silo keeps; the trainer is killed after steps on `stop` losses."""
    pool = dict(
        zip(Pooled.names, (np.full((2, 1, 8, 8), 0.3, np.float32), np.eye(2, CLASSES, dtype=np.float32)), strict=True)
    )
    task, done = silo.task(number, pool if silo.method.name == "FedMix" else None), []

    def progress(losses, total):
        done.append(losses)
        if losses == stop:
            raise KilledError(done)
        tick()
        return 0

    announced = silo.learner.train(task, np.frombuffer(silo.received, np.uint8), silo._out, progress)
    metrics = {name: value for name, value in announced.metrics.items() if name != "seconds"}
    auxiliary = {name: np.asarray(value).tolist() for name, value in announced.auxiliary_data.items()}
    files = {p.relative_to(silo.state): p.read_bytes() for p in silo.state.rglob("*") if p.is_file()}
    return (silo.update.tobytes(), announced.samples, metrics, auxiliary, files), done


@pytest.fixture
def drawn_singly(monkeypatch):
    """Views are made for one batch at a time, as of large images."""
    monkeypatch.setattr(views, "_VALUES_AHEAD", BATCH)


@pytest.mark.parametrize(("name", "labels", "slots"), RESUMING)
def test_a_killed_task_goes_on_to_the_same_bytes(tmp_path, drawn_singly, name, labels, slots):
    quiet = party(tmp_path / "quiet", name, labels, slots, None)
    killed = party(tmp_path / "killed", name, labels, slots)
    for number, share in ((1, 3), (2, 2)):  # the second begins from what the first kept
        expected, steps = trained(quiet, number)
        stop = len(steps) // share
        with pytest.raises(KilledError):
            trained(killed, number, steps[stop - 1])
        killed.restart()
        result, rest = trained(killed, number)
        assert rest == steps[stop:], "no step is repeated"
        assert result == expected


@pytest.mark.parametrize(("name", "labels", "slots"), ANEW)
def test_a_method_that_cannot_go_on_begins_anew_and_says_so(tmp_path, drawn_singly, caplog, name, labels, slots):
    expected, steps = trained(party(tmp_path / "quiet", name, labels, slots, None), 1)
    killed = party(tmp_path / "killed", name, labels, slots)
    with pytest.raises(KilledError):
        trained(killed, 1, steps[-2])
    assert [record.message for record in caplog.records] == [
        "task 1 is not kept: its method begins a task that is cut off anew"
    ]
    killed.restart()
    assert trained(killed, 1) == (expected, steps)


def test_a_loss_of_another_package_begins_anew(tmp_path, drawn_singly, monkeypatch):
    assert LocalLoss.resumes is False, "which does not say that it remembers nothing"
    monkeypatch.setattr(TaskLoss, "resumes", LocalLoss.resumes)
    killed = party(tmp_path, "FedAvg", "All", {})
    with pytest.raises(KilledError):
        trained(killed, 1, 10)
    killed.restart()
    assert trained(killed, 1)[1] == [*range(1, 13)]


def test_batches_that_are_viewed_together_are_trained_on_before_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "_VALUES_AHEAD", 3 * BATCH)
    expected, steps = trained(party(tmp_path / "quiet", "FedAvg", "All", {}, None), 1)
    killed = party(tmp_path / "killed", "FedAvg", "All", {})
    with pytest.raises(KilledError):
        trained(killed, 1, 5)
    killed.restart()
    assert trained(killed, 1) == (expected, [*range(4, len(steps) + 1)]), "three batches are viewed at once"


def test_fifty_kills_repeat_little(tmp_path, drawn_singly):
    """A step takes ten seconds; what lies between two checkpoints, and no more, is done twice."""
    now, rng, kills, number = [0.0], np.random.default_rng(7), 0, 0
    local = {"local": {"epochs": 5, "batchSize": 8}}
    quiet = party(tmp_path / "quiet", "FedAvg", "All", local, None)
    killed = party(tmp_path / "killed", "FedAvg", "All", local, Checkpointing(clock=lambda: now[0]))

    def tick():
        now[0] += 10

    while kills < 50:
        number += 1
        (expected, _), result, reached = trained(quiet, number), None, 0
        while result is None:
            stop = reached + int(rng.integers(1, 8))
            try:
                result, done = trained(killed, number, stop, tick)
            except KilledError as end:
                (done,) = end.args
                kills += 1
                killed.restart()
            assert 10 * (reached - (done[0] - 1)) <= 60, "seconds of work that was done before"
            reached = done[-1]
        assert result == expected


def _damage(path):
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)


@pytest.mark.parametrize("change", ["damage", "images", "model", "task"])
def test_a_checkpoint_of_something_else_is_left_aside(tmp_path, drawn_singly, change, caplog):
    killed = party(tmp_path / "killed", "FedAvg", "All", {})
    with pytest.raises(KilledError):
        trained(killed, 1, 4)
    number = 2 if change == "task" else 1
    if change == "damage":
        (file,) = tmp_path.rglob("task.safetensors")
        _damage(file)
    if change == "images":
        killed.images = replace(killed.images, images=killed.images.images[::-1])
    if change == "model":
        killed.model = ModelBytes.from_arrays(killed.model.layout, {n: a + 1 for n, a in killed.model.arrays().items()})
    killed.restart()
    quiet = party(tmp_path / "quiet", "FedAvg", "All", {}, None)
    quiet.images, quiet.model = killed.images, killed.model
    quiet.restart()
    expected, steps = trained(quiet, number)
    assert trained(killed, number) == (expected, steps)
    assert "begins at its first step" in caplog.text


def test_a_short_task_and_one_that_is_over_leave_no_file(tmp_path, drawn_singly):
    now = [0.0]
    silo = party(tmp_path, "FedAvg", "All", {}, Checkpointing(clock=lambda: now[0]))
    with pytest.raises(KilledError):
        trained(silo, 1, 12)
    assert not list(tmp_path.rglob("task.*"))
    assert not trained(party(tmp_path, "FedAvg", "All", {}), 1)[0][-1].keys() & {*tmp_path.rglob("task.*")}


def test_a_full_disk_costs_the_checkpoint_alone(tmp_path, drawn_singly, caplog, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(task_checkpoint, "write_checked", full)
    expected, _ = trained(party(tmp_path / "quiet", "FedAvg", "All", {}, None), 1)
    assert trained(party(tmp_path / "full", "FedAvg", "All", {}), 1)[0] == expected
    assert "No space left on device" in caplog.text
