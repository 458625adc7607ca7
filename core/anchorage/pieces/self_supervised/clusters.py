"""Orchestra: two views of an image belong to the same of the federation's clusters (methods reference, 6.13)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.pieces.self_supervised.barlow import without_classifier
from anchorage.pieces.self_supervised.cluster_assignment import (
    LOCAL_CENTROIDS,
    TEMPERATURE,
    GlobalCentroids,
    local_centroids,
)
from anchorage.pieces.self_supervised.images_alone import ImagesAlone
from anchorage.transport.tensors.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

KEPT_FEATURES = "clusters/features"
"""Name of the remembered features in the silo's kept state, float32 [up to 128, d]."""
KEPT_TARGET = "target/"
"""Prefix of the target network's parameters there."""
REMEMBERED = 128
RETAINED = 0.996
"""Share of itself that the target keeps at each step."""
TURNS = 4
"""Quarter turns that the rotation head tells apart."""


@piece("clusters")
class Clusters(ImagesAlone):
    """Clustering of features over the whole federation, and prediction of rotations (Orchestra; Lubana et al. 2022)."""

    def facts(self) -> frozenset[str]:
        """Say that silos tell their steps, and send no model in their first round."""
        return super().facts() | {Fact.STEP_COUNTS, Fact.IDLE_FIRST_ROUND}

    def needs(self) -> Sequence[Need]:
        """Need whole rounds."""
        detail = "found Asynchronous, but selfSupervised clusters is of the clusters of a whole round"
        message = f"{detail}; set Synchronous, or another selfSupervised"
        rounds = Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode"))
        return (*super().needs(), rounds)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the centroids."""
        return (
            AuxiliaryArray("centroids", "[128, d] float32", "the federation's centroids"),
            AuxiliaryArray(
                "local_centroids",
                "[up to 16, d] float32",
                "centroids of equal-sized clusters of the silo's features",
                up=True,
            ),
        )

    def memory(self, task: Task, seed: int) -> GlobalCentroids:
        """Remember the federation's centroids."""
        return GlobalCentroids(seed)

    def add_heads(self, network: Network) -> None:
        """Add the projector and the rotation head."""
        from torch import nn

        from anchorage.algorithms.projectors import Projector

        width = network.width
        network.add_head("projector", Projector(width, (width, width)))
        network.add_head("rotation", nn.Linear(width, TURNS))

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out the classifier, which no silo trains."""
        return without_classifier(layout)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses towards the server's centroids; without any, as in the first round, only look at the images."""
        from anchorage.learning.silo_round import Work

        batching = silo_round.batching(smallest=2)  # one image has no variance
        clustering = Clustering(silo_round, batching)
        losses: Iterator[Tensor]
        if "centroids" in silo_round.auxiliary_data:
            losses, steps = clustering.losses(), batching.steps(len(silo_round.images.train))
        else:
            clustering.look()
            losses, steps = iter(()), 0
        images = max(1, min(REMEMBERED, len(silo_round.images.train)))
        smallest = images // min(LOCAL_CENTROIDS, images)  # clusters are of equal size: a policy may refuse small ones
        samples = {**silo_round.counts(), "steps": steps, "smallest_group": smallest}
        return Work(losses, steps, samples, auxiliary_data=clustering.auxiliary_data, kept=clustering.kept)


class Clustering:
    """Orchestra's round at a silo: the target network, and the features that it remembers.

    The target sees each batch in train mode, by the batch's own statistics, as in the published code: only its parameters follow the model in
    training, and none of the model's running statistics sees the target's pass (methods reference, section 12, number 5).

    Parameters
    ----------
    silo_round : SiloRound
        The round.
    batching : Batching
        Passes over all images.
    """

    def __init__(self, silo_round: SiloRound, batching: Batching) -> None:
        import torch

        self._work, self._batching = silo_round, batching
        self._views = silo_round.images.views
        self._augmentation = silo_round.draws.torch("augmentation")
        self._target = silo_round.copy_received().train()
        self._trained: Mapping[str, Tensor] = dict(_parts(silo_round.network))
        with torch.no_grad():
            for name, parameter in _parts(self._target):
                if (previous_state := silo_round.kept.get(KEPT_TARGET + name)) is not None:
                    parameter.copy_(torch.from_numpy(previous_state.copy()))
        previous_state = silo_round.kept.get(KEPT_FEATURES)
        self._features = (
            None if previous_state is None else torch.from_numpy(previous_state.copy()).to(self._views.device)
        )

    def look(self) -> None:
        """Remember the target's features of as many images as fit."""
        import torch

        for indices in self._batches():
            first, _ = self._views.barlow(indices, self._augmentation)
            with torch.no_grad():
                self._remember(self._project(self._target, first))
            if self._features is not None and len(self._features) >= min(REMEMBERED, len(self._work.images.train)):
                break

    def losses(self) -> Iterator[Tensor]:
        """Yield the cross entropy of the target's and the model's clusters, and that of the turn of a turned image."""
        import torch
        from torch.nn import functional

        network, views = self._work.network, self._views
        centroids = self._work.auxiliary("centroids")["centroids"]
        for indices in self._batches():
            first, second = views.barlow(indices, self._augmentation)
            self._follow()
            with torch.no_grad():
                features = self._project(self._target, first)
                target = (features @ centroids.T / TEMPERATURE).softmax(1)
            self._remember(features)
            predicted_clusters = self._project(network, second) @ centroids.T / TEMPERATURE
            turned, turns = turned_images(views.weak(indices, self._augmentation), self._augmentation)
            turn = network.head("rotation")(network.head("projector")(network.embed(turned)))
            yield functional.cross_entropy(predicted_clusters, target) + functional.cross_entropy(turn, turns)

    def auxiliary_data(self) -> Mapping[str, NDArray[np.float32]]:
        """Return the local centroids, float32 [up to 16, d], where any image was looked at."""
        if self._features is None:
            return {}
        centroids = local_centroids(self._features.double().cpu(), self._work.draws.numpy("clusters"))
        return {"local_centroids": centroids.float().numpy()}

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the target and the features."""
        arrays = {KEPT_TARGET + name: p.detach().cpu().numpy() for name, p in _parts(self._target)}
        return arrays if self._features is None else {**arrays, KEPT_FEATURES: self._features.cpu().numpy()}

    def _batches(self) -> Iterator[Tensor]:
        train = self._work.images.train
        for positions in self._batching.positions(len(train), self._work.draws.numpy("batches")):
            yield self._views.to_device(train[positions])

    def _project(self, network: Network, images: Tensor) -> Tensor:
        from anchorage.algorithms.pseudo_labels import unit_rows

        return unit_rows(network.head("projector")(network.embed(images)))

    def _follow(self) -> None:
        import torch

        with torch.no_grad():
            for name, parameter in _parts(self._target):
                parameter.mul_(RETAINED).add_(self._trained[name], alpha=1 - RETAINED)

    def _remember(self, features: Tensor) -> None:
        import torch

        features = features.detach()
        known = features if self._features is None else torch.cat([self._features, features])
        self._features = known[-REMEMBERED:]


def turned_images(images: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Turn square images [n, c, h, h] by 0 to 3 quarters each; return them, and the quarters int64 [n]."""
    import torch

    turns = torch.randint(TURNS, (len(images),), generator=draws).to(images.device)
    turned = torch.stack([torch.rot90(images, quarter, (2, 3)) for quarter in range(TURNS)])
    return turned[turns, torch.arange(len(images), device=images.device)], turns


def _parts(network: Network) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of encoder and projector by name."""
    return ((name, p) for name, p in network.named_parameters() if name.startswith(("encoder.", "projector.")))
