"""FedPerl's committee against the known answer FP2, and in a silo's round."""

import numpy as np
import pytest
import torch
from classification_of import classes as of_classes
from learning_party import MODEL, Party, given, method_of

from anchorage.pieces.pseudo_labels.committee import CommitteeLosses, committee, committee_loss
from anchorage.pieces.pseudo_labels.consistency import ConsistencyLosses, confident_labels
from anchorage.transport.tensors.model import ModelBytes


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.known_answers
def test_a_committee_labels_where_its_mean_is_confident(known):
    name = "FP2_fedperl_pseudo"
    case = known.inputs(name)
    mean = committee(tensor(case["local_probs"]), *map(tensor, case["peer_probs"]))
    labels, mask = confident_labels(mean, case["threshold"])
    loss = committee_loss(tensor(case["logits_strong"]), labels, mask, case["lambda_a"])
    apart = known.expected(name)["peer_mse"]  # has no gradient: training leaves it out of the loss, and nothing else
    known.check(
        name,
        {
            "average": mean,
            "labels": labels.argmax(1),
            "kept": mask.nonzero()[:, 0],
            "pseudo_loss": loss,
            "peer_mse": apart,
            "loss": loss + case["lambda_i"] * apart,
        },
    )


def test_a_batch_without_an_accepted_label_has_no_loss_and_no_gradient():
    logits = torch.ones(2, 3, requires_grad=True)
    loss = committee_loss(logits, torch.eye(3)[:2], torch.zeros(2, dtype=torch.bool), 0.5)
    loss.backward()
    assert loss == 0 and not logits.grad.any()


@pytest.fixture
def targets(monkeypatch):
    """What every batch was taught."""
    batches, losses = [], ConsistencyLosses.losses

    def told(self, *arguments):
        targets = self.targets
        self.targets = lambda weak: batches.append(targets(weak)) or batches[-1]
        return losses(self, *arguments)

    monkeypatch.setattr(CommitteeLosses, "losses", told)
    return batches


@pytest.mark.parametrize("trainable", ["All", "Head"])
def test_a_peer_that_is_sure_decides_what_a_silo_learns(tmp_path, targets, trainable):
    method = method_of("FedPerl", pseudoLabels={"threshold": "0.6"})
    party = Party(method, given("Partial"), tmp_path, "Partial", described=replace_trainable(trainable))
    party.train()
    assert not any(accepted.any() for _, accepted in targets)  # the model knows nothing yet, and is alone
    targets.clear()
    memory = method.pseudo_labels.memory(of_classes(3), 1)
    arrays, sure = party.arrays(), dict(party.arrays())
    sure["classifier.weight"] = np.zeros_like(sure["classifier.weight"])
    sure["classifier.bias"] = np.array([-9, 9, -9], np.float32)
    up = party.server.up
    updates = {"north": ModelBytes.from_arrays(up, arrays), "south": ModelBytes.from_arrays(up, sure)}
    party.model, auxiliary = memory.model_for("north", 2, party.model, up, updates)
    party.train(2, auxiliary)
    assert targets and all(accepted.all() and (hard.argmax(1) == 1).all() for hard, accepted in targets)


def replace_trainable(trainable):
    return MODEL.model_copy(update={"trainable": trainable})
