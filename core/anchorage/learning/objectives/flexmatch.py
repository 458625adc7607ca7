"""FlexMatch with labels by the received model (METHODS.md 6.5, 6.9)."""

import numpy as np
import torch
from numpy.typing import NDArray

from anchorage.learning.flexmatch import Curriculum
from anchorage.learning.local_training import FlexMatchLosses, Unlabelled
from anchorage.learning.local_work import RoundWork, Work

LATEST = "flexmatch/latest"
"""Name of the counters in the silo's kept state, int64 [n]."""


def by_flexmatch(work: RoundWork) -> Work:
    """Return FlexMatch beside the supervised losses; SemiAnAgg's similarities go to the server."""
    images, pseudo = work.images, work.run.method.pseudo_labels
    classes = work.run.model.num_classes
    curriculum = Curriculum(_latest(work), classes, float(pseudo.threshold), images.views.device)
    weighting = work.run.method.weighting
    wanted = weighting.type == "SemiAnAgg"
    features = images.anchor_features(work.run, work.side)[images.unlabelled] if wanted else None
    data = Unlabelled(images.views, images.unlabelled, work.copy_received(), curriculum, features)
    flexmatch = FlexMatchLosses(work.network, data, classes, dual=work.run.method.heads.second == "PersonalDual")
    batching = work.batching()
    losses, steps = work.beside_labelled(flexmatch.losses(batching, work.draws), batching)
    persist = pseudo.flex_state == "Persist"
    return Work(
        losses,
        steps,
        work.counts(),
        lambda: flexmatch.selected,
        lambda: {"similarity": flexmatch.sums.means(weighting.minimum_per_class)} if wanted else {},
        lambda: {LATEST: curriculum.latest.cpu().numpy()} if persist else {},
    )


def _latest(work: RoundWork) -> NDArray[np.int64]:
    count = len(work.images.unlabelled)
    if work.run.method.pseudo_labels.flex_state == "Reset":
        return np.full(count, -1)
    if (kept := work.kept.get(LATEST)) is not None and len(kept) == count:
        return kept
    labels, confident = work.label(work.images.unlabelled)  # the first round starts from one pass (METHODS.md 6.5)
    return torch.where(confident, labels, -1).cpu().numpy()
