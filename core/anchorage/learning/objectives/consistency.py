"""FixMatch and UDA with labels by the model in training, batch by batch (METHODS.md 6.5)."""

from anchorage.learning.consistency import ConsistencyLosses
from anchorage.learning.local_work import RoundWork, Work


def by_consistency(work: RoundWork) -> Work:
    """Return the consistency losses beside the supervised ones."""
    images, batching = work.images, work.batching()
    consistency = ConsistencyLosses(work.network, images.views, images.unlabelled, work.run.method.pseudo_labels)
    losses, steps = work.beside_labelled(consistency.losses(batching, work.draws), batching)
    return Work(losses, steps, work.counts(), lambda: consistency.selected)
