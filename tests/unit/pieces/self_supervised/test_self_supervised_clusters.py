"""Orchestra's clustering: the balanced assignment against the known answer S1, and the server's memory of centroids."""

import numpy as np
import pytest
import torch
from classification_of import classes as of_classes
from torch.nn.functional import cosine_similarity, normalize

from anchorage.pieces.self_supervised.cluster_assignment import (
    assignment_gradient,
    balanced_assignment,
    global_centroids,
    local_centroids,
)
from anchorage.pieces.self_supervised.clusters import Clusters
from anchorage.transport.messages import Announcement


def drawn(count: int, width: int, seed: int = 0) -> torch.Tensor:
    return normalize(torch.from_numpy(np.random.default_rng(seed).standard_normal((count, width))))


@pytest.mark.known_answers
def test_s1_balanced_assignment(known):
    case = known.inputs("S1_sinkhorn")
    assignment = balanced_assignment(
        torch.tensor(case["similarities"], dtype=torch.float64),
        sharpness=case["lam"],
        tolerance=1e-14,
        iterations=10_000,
    )
    known.check(
        "S1_sinkhorn",
        {"assignment": assignment, "column_sums": assignment.sum(0), "row_sums": assignment.sum(1)},
        absolute=1e-8,
    )


def test_an_assignment_survives_a_centroid_that_nobody_is_near() -> None:
    assignment = balanced_assignment(torch.tensor([[1.0, -1e4], [1.0, -1e4]], dtype=torch.float64))
    assert assignment.isfinite().all()
    assert assignment.sum(1).tolist() == pytest.approx([1, 1])


def test_local_centroids_find_clusters_of_equal_size() -> None:
    axes = torch.eye(16, dtype=torch.float64)
    features = normalize(axes.repeat_interleave(8, 0) + 0.05 * drawn(128, 16))
    centroids = local_centroids(features, np.random.default_rng(3))
    np.testing.assert_allclose(centroids.norm(dim=1), 1)
    counts = balanced_assignment(features @ centroids.T).argmax(1).bincount(minlength=16)
    assert counts.min() >= 4 and counts.max() <= 16
    assert len(local_centroids(features[:3], np.random.default_rng(3))) == 3, "a silo with few images has few clusters"


def disagreement(centroids: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return minus the mean cosine of the soft and the balanced assignment."""
    target = balanced_assignment(pooled @ centroids.detach().T)
    return -cosine_similarity(target, (pooled @ centroids.T / 0.1).softmax(1), dim=1).mean()


def test_the_servers_step_is_the_gradient_of_its_loss() -> None:
    centroids, pooled = drawn(5, 4), drawn(7, 4, 1)
    weights = centroids.clone().requires_grad_()
    disagreement(weights, pooled).backward()
    np.testing.assert_allclose(assignment_gradient(centroids, pooled), weights.grad, atol=1e-12)


def test_the_servers_centroids_come_to_fit() -> None:
    centroids, pooled = drawn(8, 4), drawn(16, 4, 1)
    assert disagreement(global_centroids(centroids, pooled, 100), pooled) < disagreement(centroids, pooled)


def told(rows: np.ndarray) -> Announcement:
    return Announcement("task", {}, {"local_centroids": rows}, {}, None)


def test_centroids_are_kept_and_what_means_nothing_is_left_out() -> None:
    memory, other = (Clusters().memory(of_classes(3), seed) for seed in (1, 2))
    assert memory.auxiliary_data() == {} and memory.state() == {}
    memory.conclude({"a": told(np.full((4, 6), np.nan, np.float32)), "b": told(np.zeros((99, 6), np.float32))})
    assert memory.auxiliary_data() == {}, "silos only cluster until there are centroids"
    rows = drawn(4, 6).float().numpy()
    memory.conclude({"a": told(rows), "b": told(np.ones(3, np.float32))})
    sent = memory.auxiliary_data()["centroids"]
    assert sent.dtype == np.float32 and sent.shape == (128, 6)
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), 1, rtol=1e-6)
    memory.conclude({"a": told(drawn(4, 5).float().numpy())})
    np.testing.assert_array_equal(memory.auxiliary_data()["centroids"], sent, "another width is left out")
    other.restore(memory.state())
    np.testing.assert_array_equal(other.auxiliary_data()["centroids"], sent)
