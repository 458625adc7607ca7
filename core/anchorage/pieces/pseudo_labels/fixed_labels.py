"""What pseudo-labels share that are made once per round: FedAnchor's and SemiFL's (methods reference, 6.7, 6.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.fact import Fact
from anchorage.pieces.slots import PseudoLabels

if TYPE_CHECKING:
    from anchorage.learning.silo_round import SiloRound, Work


class FixedLabels(PseudoLabels):
    """Labels all images of a silo once per round, and trains on the accepted ones."""

    def facts(self) -> frozenset[str]:
        """Say that labels are fixed for a round, also those of labelled images, and that features of the received model can be compared."""
        return frozenset(
            {
                Fact.PSEUDO_LABELS,
                Fact.PSEUDO_LABELS_OF_ONE_HEAD,
                Fact.FIXED_LABELS,
                Fact.LABELS_REPLACED,
                Fact.RECEIVED_FEATURES,
            }
        )

    def objective(self, silo_round: SiloRound) -> Work:
        """Return L_fix, or L_fix + b L_mix, over the accepted images."""
        from anchorage.learning.local_training import Labelled, strong_losses
        from anchorage.learning.silo_round import Work

        images, mixup, network = silo_round.images, silo_round.method.mixup, silo_round.network
        labels, accepted = self.checked_labels(silo_round, images.train)
        for part in silo_round.listeners:
            features = images.views.map_batches(images.train, lambda i: network.embed(images.views.plain(i)))
            part.pseudo_labelled(images.views.to_device(images.train), features, labels, accepted)
        chosen, all_labels = accepted.cpu().numpy(), labels.cpu().numpy()
        fix = Labelled(self.seen(silo_round), images.train[chosen], all_labels[chosen])
        mix = Labelled(images.views, images.train, all_labels)
        batching = silo_round.batching(smallest=2)
        if mixup.at_silos:
            losses = mixup.losses(network, fix, mix, batching, silo_round.draws)
        else:
            losses = strong_losses(network, fix, silo_round.task.loss, batching, silo_round.draws, silo_round.devices)
        samples = {"train": len(images.train), "labelled": 0, "unlabelled": len(images.train)}
        steps, count = batching.steps(len(fix.indices)), len(fix.indices)
        return Work(
            losses,
            steps,
            samples,
            lambda: count,
            accepted=lambda: (fix.indices, fix.labels),
            resumes=not mixup.at_silos,
            divides=not mixup.at_silos,
        )
