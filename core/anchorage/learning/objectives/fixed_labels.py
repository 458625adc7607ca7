"""Pseudo-labels that are fixed for the round: FedAnchor's and SemiFL's (METHODS.md 6.7, 6.8)."""

from torch import Tensor

from anchorage.learning.local_training import Labelled, fix_mix_losses, strong_losses
from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.similarity import SimilaritySums


def by_fixed_labels(work: RoundWork) -> Work:
    """Return L_fix, or L_fix + b L_mix, over the accepted images."""
    images, method = work.images, work.run.method
    labels, accepted = work.label(images.train)
    similarity = _anchor_similarity(work, labels, accepted) if method.weighting.type == "SemiAnAgg" else None
    chosen, all_labels = accepted.cpu().numpy(), labels.cpu().numpy()
    fix = Labelled(images.views, images.train[chosen], all_labels[chosen])
    mix = Labelled(images.views, images.train, all_labels)
    batching = work.batching(smallest=2)
    if method.mixup.at in ("Client", "Both"):
        losses = fix_mix_losses(work.network, fix, mix, batching, method.mixup, work.draws)
    else:
        losses = strong_losses(work.network, fix, batching, work.draws)
    samples = {"train": len(images.train), "labelled": 0, "unlabelled": len(images.train)}
    return Work(
        losses,
        batching.steps(len(fix.indices)),
        samples,
        lambda: len(fix.indices),
        lambda: {} if similarity is None else {"similarity": similarity.means(method.weighting.minimum_per_class)},
    )


def _anchor_similarity(work: RoundWork, labels: Tensor, accepted: Tensor) -> SimilaritySums:
    images, views = work.images, work.images.views
    sums = SimilaritySums(work.run.model.num_classes, views.device)
    features = views.mapped(images.train, lambda i: work.network.encoder(views.plain(i)))
    anchors = images.anchor_features(work.run, work.side)[views.to_device(images.train)]
    sums.add(anchors, features, labels, accepted)
    return sums
