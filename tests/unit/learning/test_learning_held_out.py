"""Images that a silo scores models on and does not train on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from learning_party import Party, images_of, method_of

from anchorage.learning.batch_norm import norm_arrays
from anchorage.learning.network import Network
from anchorage.transport.messages import Task, TaskKind


class Holding(Party):
    """A silo of a run with `siloPercent`."""

    percent = 25

    def restart(self) -> None:
        self.run = self.run.model_copy(update={"silo_percent": self.percent})
        super().restart()

    def scored(self) -> np.ndarray:
        task = Task("1.score", TaskKind.EVALUATE, 1, self.model.manifest, held_out=True)
        return self.learner.evaluate(task, self.model.buffer()).tally["confusion"]


def test_held_out_images_are_scored_and_never_trained_on(tmp_path: Path) -> None:
    images, method = images_of(40), method_of("FedAvg")
    party = Holding(method, images, tmp_path / "a", labels="All")
    silo_images = party.learner._images
    assert len(silo_images.held_out) == party.scored().sum() > 0
    assert not set(silo_images.held_out) & {*silo_images.train, *silo_images.validation}
    assert sorted({*silo_images.held_out, *silo_images.train}) == list(range(40))
    counts = np.bincount(images.labels[silo_images.held_out], minlength=len(party.scored()))
    assert party.scored().sum(1).tolist() == counts.tolist()
    announced = party.train()
    assert announced.samples["train"] == 40 - len(silo_images.held_out)
    spoilt = images.images.copy()
    spoilt[silo_images.held_out] = 255 - spoilt[silo_images.held_out]
    other = Holding(method, replace(images, images=spoilt), tmp_path / "b", labels="All")
    assert other.train().update == announced.update, "what is held out takes no part in training"
    assert (
        Holding(method, images, tmp_path / "c", labels="All").learner._images.held_out.tolist()
        == silo_images.held_out.tolist()
    )


def test_images_without_labels_are_not_held_out(tmp_path: Path) -> None:
    images = images_of(40)
    labels = np.where(np.arange(40) < 20, images.labels, -1)
    partly = replace(images, labels=labels, strata=labels)
    silo_images = Holding(method_of("FedAvgSemi"), partly, tmp_path / "a", labels="Partial").learner._images
    assert (
        0 < len(silo_images.held_out) < 20
        and (partly.labels[silo_images.held_out] >= 0).all()
        and len(silo_images.unlabelled) == 20
    )
    blind = Holding(method_of("FedAvgSemi"), images, tmp_path / "b", labels="None")
    assert blind.learner._images.held_out.size == 0 and blind.scored().sum() == 0


def test_validation_split_and_held_out_images_are_apart(tmp_path: Path) -> None:
    images = Holding(method_of("DVW"), images_of(60), tmp_path, labels="All").learner._images
    parts = [set(images.train), set(images.validation), set(images.held_out)]
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts)) == 60


def test_a_silo_s_own_layers_are_scored(tmp_path: Path) -> None:
    """FedBN: the received model has no batch normalisation of its own; the silo scores with its layers as they are after the round."""
    party = Holding(method_of("FedAvg", batchNorm={"local": {}}), images_of(60), tmp_path, labels="All")
    party.scored()
    received = norms_of(party.learner._networks.scoring)
    party.train()
    party.scored()
    assert norms_of(party.learner._networks.scoring) == norms_of(party.learner._network) != received


def norms_of(network: Network) -> dict[str, list[float]]:
    norms = {name: value.tolist() for name, value in norm_arrays(network).items()}
    assert norms
    return norms
