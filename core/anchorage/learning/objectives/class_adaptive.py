"""CBAFed's pseudo-labels, accepted by thresholds per class (METHODS.md 6.11)."""

from itertools import chain

import numpy as np

from anchorage.learning.class_adaptive import AdaptiveLosses
from anchorage.learning.local_work import RoundWork, Work


def by_class_thresholds(work: RoundWork) -> Work:
    """Return a supervised pass over labelled images, then one over the accepted ones; the class counts go to the server."""
    images, batching, side = work.images, work.batching(smallest=2), work.received_side("thresholds", "rare")
    adaptive = AdaptiveLosses(
        work.network, images.views, images.unlabelled, side["thresholds"], side["rare"].bool(), work.draws
    )
    known, used = images.labels[images.labelled], adaptive.used
    steps = batching.steps(len(known))
    losses = chain(work.supervised_losses(batching) if steps else (), adaptive.losses(batching))
    counts = np.bincount(np.concatenate([known, used]), minlength=work.run.model.num_classes)
    return Work(
        losses,
        steps + adaptive.steps(batching),
        work.counts(),
        lambda: len(used),
        lambda: {"counts": counts},
    )
