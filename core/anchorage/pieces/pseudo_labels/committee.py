"""FedPerl: silos label with the mean model of the silos most like their own (methods reference, N6, equations N36 and N37)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction, PositiveDecimal
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.mean import MeanSource
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.single_tensors import TensorReader
from anchorage.pieces.aggregation.layer_cosine import cosines
from anchorage.pieces.pseudo_labels.class_adaptive import previous_round
from anchorage.pieces.pseudo_labels.consistency import Consistency, ConsistencyLosses, confident_labels
from anchorage.pieces.pseudo_labels.helpers import helper_name
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.joined import JoinedSource, Stretch
from anchorage.transport.tensors.layout import AUXILIARY_PREFIXES, Layout, TensorEntry

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.calibration import Acceptance
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound
    from anchorage.learning.views import Views
    from anchorage.transport.tensors.chunks import ChunkSource
    from anchorage.transport.tensors.model import ModelBytes

SCORES = ("accuracy", "loss")
"""Metrics on the server's validation images that are features of a silo's model."""


@piece("committee")
class Committee(Consistency):
    """Labels by the silo's model together with the mean model of the most similar silos (FedPerl).

    The server finds the silos whose last models are most like a silo's own, and sends it the mean of these models. It labels weak views
    together with the model in training, both in eval mode; the label is learnt on strong views.
    """

    threshold: Fraction = Field(
        "0.6",
        description="Minimum confidence (largest class probability) of an accepted pseudo-label. Lower it to accept more labels, raise it "
        "to accept fewer wrong ones.",
    )
    peers: Annotated[int, Field(ge=1, le=16)] = Field(
        2,
        description="Number of most similar silos whose models are averaged and sent to a silo. 1 sends a single silo's own model.",
    )
    weight: PositiveDecimal = Field("0.5", description="Factor of the loss on images with accepted labels.")

    def needs(self) -> Sequence[Need]:
        """Need rounds, and the models of the one before."""
        return (*super().needs(), previous_round(self.name))

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the peers' mean model."""
        return (
            *super().auxiliary(),
            AuxiliaryArray("peers", "[] int64", "how many silos' models are in the mean behind the model"),
            AuxiliaryArray("helper0.*", "as the model", "the mean of the most similar silos' models, behind the model"),
        )

    def task_layout(self, down: Layout) -> Layout:
        """Return the global model's layout, and behind it room for the peers' mean model."""
        network_tensors = [(t.name, t.dtype, t.shape) for t in down.tensors]
        mean = [(helper_name(0, t.name), t.dtype, t.shape) for t in weights_in(down)]
        return Layout.of([*network_tensors, *mean], {t.name for t in down.tensors if t.frozen})

    def memory(self, task: Task, seed: int) -> PeerModels:
        """Compare every silo's last model."""
        return PeerModels(self)

    def consistency(self, silo_round: SiloRound) -> CommitteeLosses:
        """Return the losses of the unlabelled images."""
        return CommitteeLosses(silo_round, self.seen(silo_round), self.acceptance(silo_round), float(self.weight))


def weights_in(layout: Layout) -> list[TensorEntry]:
    """Return the tensors of a model that silos train or count, integers and what travels beside the network left out."""
    return [
        t for t in layout.tensors if t.dtype == "F32" and not t.frozen and not t.name.startswith(AUXILIARY_PREFIXES)
    ]


class PeerModels(RoundMemory):
    """Finds the silos whose last models are most like one's own, by their tensors' means and deviations and by what they score.

    Parameters
    ----------
    slot : Committee
        How many of them.
    """

    keeps_updates = scores_updates = True

    def __init__(self, slot: Committee) -> None:
        self._slot = slot
        self._scores: dict[str, NDArray[np.float64]] = {}
        self._statistics: dict[str, NDArray[np.float64]] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Learn nothing: models alone are compared."""

    def scored(self, silo: str, metrics: Mapping[str, float]) -> None:
        """Take what a silo's model scored; without images to score on, nothing."""
        silo_scores = np.array([metrics.get(name, np.nan) for name in SCORES])
        self._scores = {name: scores for name, scores in self._scores.items() if name != silo}
        if np.isfinite(silo_scores).all():
            self._scores[silo] = silo_scores

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the scores by silo."""
        return dict(self._scores)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take scores that `state` returned."""
        self._scores = {silo: array.astype(np.float64) for silo, array in state.items()}

    def peers_of(self, silo: str, up: Layout, updates: Mapping[str, ChunkSource]) -> list[str]:
        """Return the silos whose models are nearest to this one's, ties by name; none for a silo without a model of its own."""
        statistics_by_silo = {
            name: self._statistics_of(updates[name], up)
            for name in sorted(updates)
            if (updates[name].manifest.layout, updates[name].manifest.nbytes) == (up.digest, up.nbytes)
        }
        known = [name for name, statistics in statistics_by_silo.items() if np.isfinite(statistics).all()]
        if silo not in known:
            return []
        scored = all(name in self._scores for name in known)
        features = np.stack([np.append(statistics_by_silo[n], self._scores[n] if scored else ()) for n in known])
        return [known[p] for p in nearest(similarities(normalised(features)), known.index(silo), self._slot.peers)]

    def model_for(
        self, silo: str, round_number: int, model: ModelBytes, up: Layout, updates: Mapping[str, ChunkSource]
    ) -> tuple[ChunkSource, AuxiliaryData]:
        """Return a silo's model with its peers' mean model behind it, and ``peers``, int64: how many they are; 0: the global model alone.

        What silos do not send stands there as in the global model.
        """
        peers = self.peers_of(silo, up, updates)
        present = {update.manifest.digest for update in updates.values()}
        self._statistics = {digest: held for digest, held in self._statistics.items() if digest in present}
        if not peers:
            return model, {"peers": np.array(0)}
        mean = MeanSource([updates[name] for name in peers], [1.0] * len(peers), up)
        stretches = [Stretch(model, 0, model.layout.nbytes)]
        for tensor in weights_in(model.layout):
            source: ChunkSource = mean if tensor.name in up.by_name else model
            up_entry = up.by_name.get(tensor.name, tensor)
            last = stretches[-1]
            if last.source is source and last.stop == up_entry.offset:
                stretches[-1] = Stretch(source, last.start, up_entry.offset + up_entry.nbytes)
            else:
                stretches.append(Stretch(source, up_entry.offset, up_entry.offset + up_entry.nbytes))
        layout = self._slot.task_layout(model.layout)
        return JoinedSource(layout.digest, stretches, model.layout.front), {"peers": np.array(len(peers))}

    def _statistics_of(self, update: ChunkSource, up: Layout) -> NDArray[np.float64]:
        digest = update.manifest.digest
        if digest not in self._statistics:
            self._statistics[digest] = statistics_of(update, up)
        return self._statistics[digest]


def statistics_of(update: ChunkSource, layout: Layout) -> NDArray[np.float64]:
    """Return the mean and the standard deviation of every tensor of an update, float64 [2 T]."""
    read = TensorReader(update)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([f(read(tensor)) for tensor in weights_in(layout) for f in (np.mean, np.std)])


def normalised(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return features of silos [K, F], every column from 0 to 1; one of equal values is 1 (equation N36)."""
    lowest, reach = features.min(0), np.ptp(features, axis=0)
    scaled: NDArray[np.float64] = np.divide(features - lowest, reach, out=np.ones_like(features), where=reach > 0)
    return scaled


def similarities(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosines between silos' features [K, F], float64 [K, K]; 0 beside features that are all 0."""
    return np.stack([cosines(features, row) for row in features])


def nearest(similarity: NDArray[np.float64], silo_index: int, count: int) -> list[int]:
    """Return the positions most similar to `silo_index` in a square of similarities, the best first, ties by position; without itself."""
    order = np.argsort(-similarity[silo_index], kind="stable")
    return [int(other) for other in order if other != silo_index][:count]


class CommitteeLosses(ConsistencyLosses):
    """The losses of a silo's round; without peers the model in training labels alone.

    Parameters
    ----------
    silo_round : SiloRound
        The round; its model came with the peers' mean.
    views : Views
        All images of the silo, as they are labelled and learnt.
    acceptance : Acceptance
        Which images enter the loss.
    weight : float
        Factor of the loss.
    """

    divides = False

    def __init__(self, silo_round: SiloRound, views: Views, acceptance: Acceptance, weight: float) -> None:
        unlabelled = silo_round.images.unlabelled
        shares = silo_round.method.local_loss.log_shares(silo_round)
        super().__init__(silo_round.network, views, unlabelled, acceptance, None, shares)
        self._weight = weight
        self._peers = [_peer(silo_round)] if int(silo_round.auxiliary("peers")["peers"]) else []

    def targets(self, weak: Tensor) -> tuple[Tensor, Tensor]:
        """Return the committee's labels of weak views as rows of 0 and 1, and which of them count."""
        import torch

        self.network.eval()
        try:
            with torch.no_grad():
                votes = (self.acceptance.shift_logits(model(weak)).softmax(1) for model in (self.network, *self._peers))
                return confident_labels(committee(*votes), self.acceptance.threshold)
        finally:
            self.network.train()

    def loss(self, strong: Tensor, targets: Tensor, confident: Tensor) -> Tensor:
        """Return the weighted loss of a batch."""
        return committee_loss(strong, targets, confident, self._weight)


def _peer(silo_round: SiloRound) -> Network:
    """Return the peers' mean model; what did not come with it is as received."""
    import torch

    peer, first = silo_round.copy_received(), helper_name(0, "")
    state: Mapping[str, Tensor] = peer.state_dict()
    for name, array in silo_round.received.items():
        if name.startswith(first):
            state[name.removeprefix(first)].copy_(torch.from_numpy(array.copy()))
    return peer


def committee(*probabilities: Tensor) -> Tensor:
    """Return the mean of several models' probabilities, [n, C] each (equation N37)."""
    import torch

    return torch.stack(probabilities).mean(0)


def committee_loss(strong: Tensor, targets: Tensor, accepted: Tensor, weight: float) -> Tensor:
    """Return the weighted cross entropy of logits [n, C] with targets [n, C], averaged over the accepted images, bool [n]; 0 without any.

    Equation N37 but for its distance between own and peers' probabilities, which has no gradient.
    """
    from torch.nn import functional

    each = functional.cross_entropy(strong, targets, reduction="none")
    return weight * ((each * accepted).sum() / accepted.sum().clamp(min=1))
