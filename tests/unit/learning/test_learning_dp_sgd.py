"""DP-SGD: gradients of single images, clipped, on Poisson samples; what it refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from anchorage.api.errors import AnchorageError
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.learning.data import ImageSet
from anchorage.learning.device import calculation
from anchorage.learning.dp_sgd import DpSgd, clipped_sums
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.optimisers import PlainSgd
from anchorage.learning.poisson import PoissonBatches
from anchorage.methods import resolve
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.model import read_arrays

COUNT, SIDE = 24, 8
CLASSES = ("a", "b", "c")


def method_of(name: str = "FedAvg", **fields: Any) -> Any:
    sgd = {"learningRate": "0.1", "weightDecay": "0", "momentum": "0"}
    local = {"epochs": 2, "batchSize": COUNT, "optimiser": {"sgd": sgd}, **fields.pop("local", {})}
    return resolve(MethodSpec.model_validate({"name": name, "local": local, "batchNorm": {"groupNorm": {}}, **fields}))


def model_of(network: str = "SmallCnn", kind: str = "classification") -> ModelDescription:
    task = {kind: {"labels" if kind == "multiLabel" else "classes": list(CLASSES)}}
    return ModelDescription.model_validate({"task": task, "network": network, "imageSize": SIDE, "channels": 1})


def images_of(count: int = COUNT) -> ImageSet:
    rng = np.random.default_rng(4)
    pixels = rng.integers(0, 256, (count, 1, SIDE, SIDE), np.uint8)
    names = tuple(f"{number}" for number in range(count))
    labels = rng.integers(0, 3, count)
    return ImageSet(pixels, labels, names, names, labels, CLASSES, np.arange(count, dtype=np.uint64))


def train(folder: Path, method: Any, dp_sgd: DpSgd, labels: str = "All") -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return a model's arrays before and after a round, and its number of steps."""
    server = build_server_learner(model=model_of(), method=method, seed=1)
    initial, layout = server.initialise(), server.down.to_json()
    run = RunDescription(
        federation="f", seed=1, model=model_of(), method=method, rounds=2, mode="Synchronous", down=layout, up=layout
    )
    learner = build_silo_learner(
        run=run, silo="a", labels=labels, images=images_of(), state=folder, device="cpu", dp_sgd=dp_sgd
    )
    update, steps = np.empty(server.up.nbytes, np.uint8), []
    learner.train(
        Task("1.train", TaskKind.TRAIN, 1, initial.manifest),
        initial.buffer(),
        lambda nbytes: update[:nbytes],
        lambda done, total: steps.append(done) or 0,
    )
    return dict(read_arrays(server.down, initial.buffer())), dict(read_arrays(server.up, update)), len(steps)


@pytest.fixture(autouse=True)
def _as_a_learner_calculates() -> Iterator[None]:
    with calculation():
        yield


def test_gradients_lie_in_memory_as_their_parameters_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused step pairs numbers by their places in memory; filters lie there channels last."""
    grad_states: set[bool] = set()

    step = PlainSgd.step

    def look(optimiser: PlainSgd) -> None:
        trained = [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        grad_states.update(p.grad.stride() == p.stride() for p in trained)
        grad_states.update(not p.is_contiguous() for p in trained if p.dim() == 4 and min(p.shape[1:]) > 1)
        step(optimiser)

    monkeypatch.setattr(PlainSgd, "step", look)
    train(tmp_path, method_of(), DpSgd(clip_norm=1.0, noise_multiplier=0.1))
    assert grad_states == {True}


def test_findings_are_learnt_image_by_image() -> None:
    """An image's gradient is that of its own known findings, however many the others have; one without any adds nothing."""
    network = build_model(model_of(kind="multiLabel"), TrainingMethod.of(method_of()), 1).eval()
    trained = dict(network.named_parameters())
    images = torch.randn(4, 1, SIDE, SIDE)
    labels = torch.tensor([[1, 0, -1], [2, 1, 1], [-1, -1, 0], [-1, 2, -1]], dtype=torch.int8)
    loss = model_of(kind="multiLabel").task.loss
    sums = [
        clipped_sums(network, trained, lambda some: images[some], indices, labels[indices], loss, 0.3)
        for indices in (torch.arange(4), *torch.arange(4).split(1))
    ]
    for name in trained:
        torch.testing.assert_close(sums[0][name], sum(single[name] for single in sums[1:]))
    norms = [float(sum(each.square().sum() for each in single.values())) ** 0.5 for single in sums[1:]]
    assert norms[:3] == pytest.approx([0.3] * 3, abs=0.3) and all(norms[:3]) and norms[3] == 0
    assert all(norm <= 0.3 + 1e-6 for norm in norms)


@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_sums_of_clipped_gradients_are_those_of_a_plain_loop(clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anchorage.learning.dp_sgd.GRADIENT_BYTES", 2_000_000)  # several images together, several times
    network = build_model(model_of(), TrainingMethod.of(method_of()), 1).eval()
    trained = dict(network.named_parameters())
    images, labels = torch.randn(COUNT, 1, SIDE, SIDE), torch.randint(0, 3, (COUNT,))
    indices = torch.arange(COUNT)
    sums_found = clipped_sums(network, trained, lambda some: images[some], indices, labels, cross_entropy, clip)
    expected = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in trained.items()}
    for image, label in zip(images, labels, strict=True):
        network.zero_grad()
        cross_entropy(network(image[None]), label[None]).backward()
        gradients = {name: p.grad.double() for name, p in trained.items() if p.grad is not None}
        norm = sum(float(each.square().sum()) for each in gradients.values()) ** 0.5
        for name, each in gradients.items():
            expected[name] += each * min(1.0, clip / norm)
    for name, each in expected.items():
        assert torch.allclose(sums_found[name], each, rtol=1e-4, atol=1e-6), name


def test_no_image_counts_more_than_the_norm_whatever_its_gradient() -> None:
    network = build_model(model_of(), TrainingMethod.of(method_of()), 1).eval()
    trained = dict(network.named_parameters())
    images = torch.randn(3, 1, SIDE, SIDE)
    images[1], images[2] = 1e30, torch.nan
    labels = torch.zeros(3, dtype=torch.int64)

    def sums(*which: int) -> torch.Tensor:
        indices = torch.tensor(which, dtype=torch.int64)
        sums_found = clipped_sums(network, trained, lambda i: images[i], indices, labels[indices], cross_entropy, 0.5)
        return torch.cat([each.flatten() for each in sums_found.values()])

    assert not sums().any()
    for one in range(3):
        assert sums(one).norm() <= 0.5 + 1e-6 and sums(one).isfinite().all()


def test_without_noise_and_with_all_images_it_is_gradient_descent_on_clipped_gradients(tmp_path: Path) -> None:
    method = method_of()
    before, after, steps = train(tmp_path, method, DpSgd(clip_norm=1e9, noise_multiplier=0.0))
    assert steps == 2
    network = build_model(model_of(), TrainingMethod.of(method), 1)
    state = {name: torch.from_numpy(np.array(array)) for name, array in before.items()}
    network.load_state_dict(state)
    network.eval()
    data = images_of()
    views = views_of(data.images, model_of(), TrainingMethod.of(method), torch.device("cpu"), Draws(1, silo="a"))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        cross_entropy(network(views.plain(torch.arange(COUNT))), torch.from_numpy(data.labels)).backward()
        optimiser.step()
    for name, value in network.state_dict().items():
        assert np.allclose(after[name], value.numpy(), rtol=1e-3, atol=1e-5), name


def test_noise_has_its_deviation_and_no_two_runs_are_equal(tmp_path: Path) -> None:
    method = method_of(local={"epochs": 1})
    noise = DpSgd(clip_norm=0.5, noise_multiplier=400.0)
    changes = []
    for folder in ("one", "two"):
        before, after, _ = train(tmp_path / folder, method, noise)
        changes.append(np.concatenate([(after[name] - before[name]).ravel() for name in before]))
    assert changes[0].std() == pytest.approx(0.1 * 400 * 0.5 / COUNT, rel=0.02)  # rate * noise / images of a batch
    assert abs(np.corrcoef(*changes)[0, 1]) < 0.02


def test_batches_are_poisson_samples() -> None:
    batches = PoissonBatches.of(images=200, batch_size=10, epochs=50)
    assert (batches.rate, batches.steps) == (0.05, 1000)
    drawn = np.zeros((batches.steps, 200))
    for number, positions in enumerate(batches.draw(200, np.random.default_rng(1))):
        drawn[number, positions] = 1
    sizes = drawn.sum(1)
    assert sizes.mean() == pytest.approx(10, rel=0.03) and sizes.var() == pytest.approx(200 * 0.05 * 0.95, rel=0.15)
    together = np.corrcoef(drawn.T)[np.triu_indices(200, 1)]
    assert abs(together.mean()) < 0.002, "images are drawn independently; a permutation's would exclude one another"
    assert PoissonBatches.of(images=7, batch_size=10, epochs=2) == PoissonBatches(rate=1.0, steps=2)
    assert PoissonBatches.of(images=200, batch_size=10, epochs=5, steps=3) == PoissonBatches(rate=0.05, steps=3)
    assert PoissonBatches.of(images=0, batch_size=10, epochs=5, steps=3).steps == 0


@pytest.mark.parametrize(
    ("method", "labels", "expected"),
    [
        (method_of(batchNorm={"average": {}}), "All", "statistics of batches"),
        (method_of(localLoss={"balancedSoftmax": {}}), "All", "one loss per labelled image"),
        (method_of("FedProx"), "All", "one loss per labelled image"),
        (method_of("MOON", batchNorm={"average": {}}), "All", "statistics of batches"),
        (method_of(local={"accumulation": 2}), "All", "accumulation"),
        (method_of(), "None", "one loss per labelled image|labels of all images"),
    ],
)
def test_what_an_image_could_change_otherwise_is_refused(
    tmp_path: Path, method: Any, labels: str, expected: str
) -> None:
    with pytest.raises(AnchorageError, match=f"ANC-2217.*({expected})"):
        train(tmp_path, method, DpSgd(clip_norm=1.0, noise_multiplier=1.0), labels)
