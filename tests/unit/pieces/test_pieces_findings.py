"""Losses of several findings per image: what uncertain entries teach, how positives weigh, and by which shares logits are shifted."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from drawn_findings import documents, draw_site, write
from torch.nn import functional

from anchorage.api.mistakes import DocumentError
from anchorage.learning.draws import Draws
from anchorage.methods import validate_study
from anchorage.pieces.finding_counts import LabelledFindings, count_findings
from anchorage.pieces.local_loss.balanced_binary import BalancedBinary, shift_of
from anchorage.pieces.local_loss.binary_cross_entropy import BinaryCrossEntropy, positive_weights
from anchorage.pieces.task.multi_label import MultiLabel
from anchorage.transport.messages import Announcement

TASK = MultiLabel(labels=("Mass", "Effusion", "Edema"))
LABELS = np.array([[1, 2, -1], [0, 2, 2], [2, 0, 1], [0, 1, 0], [0, 0, -1]], np.int8)


def silo_round(silo: str = "a", number: int = 1) -> Any:
    return SimpleNamespace(task=TASK, draws=Draws(7, number, silo))


def labelled(labels: np.ndarray) -> Any:
    return SimpleNamespace(labels=labels, views=SimpleNamespace(device=torch.device("cpu")))


@pytest.mark.parametrize(("choice", "value"), [("Ignore", np.nan), ("Zero", 0.0), ("One", 1.0)])
def test_uncertain_entries_become_targets(choice: str, value: float) -> None:
    targets = BinaryCrossEntropy(uncertain=choice).targets(silo_round(), LABELS)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets[LABELS == 2], np.full(4, value, np.float32))
    np.testing.assert_array_equal(targets[(LABELS == 0) | (LABELS == 1)], LABELS[(LABELS == 0) | (LABELS == 1)])
    assert np.isnan(targets[LABELS == -1]).all()


def test_soft_targets_are_fixed_for_a_run_and_differ_between_silos_and_images() -> None:
    piece = BinaryCrossEntropy(uncertain="Soft")
    first, later, other = (
        piece.targets(each, LABELS) for each in (silo_round(), silo_round(number=9), silo_round("b"))
    )
    soft = first[LABELS == 2]
    assert ((soft >= 0.55) & (soft <= 0.85)).all() and len(set(soft.tolist())) == 4
    np.testing.assert_array_equal(first, later)
    assert not np.array_equal(soft, other[LABELS == 2])


def test_a_finding_may_have_a_choice_of_its_own() -> None:
    targets = BinaryCrossEntropy(uncertain="Zero", uncertain_of={"Effusion": "One"}).targets(silo_round(), LABELS)
    assert targets[:, 1].tolist()[:2] == [1, 1] and targets[1, 2] == 0 and targets[2, 0] == 0


def test_positives_weigh_by_the_silos_labels_and_at_most_ten() -> None:
    targets = np.array([[1, 0, np.nan]] + [[0, 0, 1]] * 30, np.float32)
    assert positive_weights(targets).tolist() == [10.0, 1.0, 0.0]
    few = np.array([[1, 0, 1], [0, 1, 0], [0, np.nan, 0]], np.float32)
    assert positive_weights(few).tolist() == [2.0, 1.0, 2.0]
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    loss = BinaryCrossEntropy(positive_weight="Silo").loss(labelled(few), TASK)
    each = functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(few).nan_to_num(), reduction="none")
    due = (each * torch.tensor([[2.0, 1, 2], [1, 1, 1], [1, 0, 1]])).sum() / 8
    torch.testing.assert_close(loss(logits, torch.from_numpy(few)), due)


def test_logits_are_shifted_by_the_shares_of_positives() -> None:
    counts = count_findings(LABELS)
    assert counts.tolist() == [[3, 2, 1], [1, 1, 1]]
    np.testing.assert_allclose(shift_of(counts), np.log([1 / 3, 1 / 2, 1]), rtol=1e-6)
    clipped = np.log(0.001 / 0.999)
    np.testing.assert_allclose(shift_of(np.array([[9, 0, 0], [0, 9, 0]])), [clipped, -clipped, 0], rtol=1e-5)
    logits, labels = torch.zeros(5, 3), torch.from_numpy(LABELS)
    loss = BalancedBinary().loss(labelled(LABELS), TASK)(logits, labels)
    shifted = torch.from_numpy(shift_of(counts)).expand(5, 3)
    torch.testing.assert_close(loss, TASK.loss(shifted, labels))


def test_the_server_tells_the_counts_of_all_silos() -> None:
    memory = LabelledFindings(3)
    assert memory.auxiliary_data()["all_finding_counts"].tolist() == [[0] * 3] * 2
    sound, wrong = np.full((2, 3), 4, np.int64), [np.full((3, 2), 4), np.full((2, 3), 0.5), np.full((2, 3), -1)]
    announcements = [sound, sound, *wrong]
    memory.conclude(
        {
            str(place): Announcement(
                task="t", samples={}, metrics={}, update=None, auxiliary_data={"finding_counts": counts}
            )
            for place, counts in enumerate(announcements)
        }
    )
    assert memory.auxiliary_data()["all_finding_counts"].tolist() == [[8] * 3] * 2
    restarted = LabelledFindings(3)
    restarted.restore(memory.state())
    assert restarted.auxiliary_data()["all_finding_counts"].tolist() == [[8] * 3] * 2


@pytest.mark.parametrize(
    ("method", "spec", "words"),
    [
        (
            {"localLoss": {"binaryCrossEntropy": {"uncertainOf": {"Hernia": "One"}}}},
            {},
            "uncertainOf.Hernia: found 'Hernia'",
        ),
        (
            {"localLoss": {"balancedBinary": {"shares": "Federation"}}},
            {"protocol": {"mode": "Asynchronous"}},
            "found Asynchronous, but balancedBinary with shares Federation",
        ),
        (
            {"localLoss": {"balancedSoftmax": {}}},
            {},
            "found balancedSoftmax, which serves classification, but the task is multiLabel",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run(tmp_path, method, spec, words) -> None:
    draw_site(tmp_path / "a", 4, 1)
    with pytest.raises(DocumentError, match=words):
        validate_study(write(tmp_path, documents({"name": "FedAvg", **method}, **spec)))
