"""What the server makes of class moments: classifiers in closed form (methods reference, N3), and the choice among several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MOMENTS_UNUSABLE
from anchorage.api.metric_names import GUESSES, GUESSES_CHOSEN
from anchorage.learning.hooks import ServerTrainer
from anchorage.pieces.server_training.recipes import PARTS

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.algorithms.moments import Moments, Second
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.views import Views
    from anchorage.pieces.server_training.moment_options import MomentOptions

FEW = 5
"""Images of a class below which naive Bayes takes the variances within all classes."""

Parameters = Mapping[str, "Tensor"]
"""A classifier's parameters by name, float64."""


class ClosedForm(ServerTrainer):
    """Makes the classifier of a round's moments and those of the server's own anchors."""

    def __init__(self, slot: MomentOptions) -> None:
        self._slot = slot

    def train(self, server_round: ServerRound) -> Mapping[str, float]:
        """Set the classifier and return how many classes no image was counted of, and what `_choice` does.

        Raises
        ------
        AnchorageError
            MOMENTS_UNUSABLE: fewer than two classes have images, features are alike, or the covariance is none.
        """
        import torch

        from anchorage.learning.stepping import on_trial

        slot, network = self._slot, server_round.network
        every = self._moments(server_round)
        present = every[0].labelled > 0
        if not present.any() and on_trial():
            return {}
        if int(present.sum()) < 2:
            message = (
                f"{int(present.sum())} of {len(present)} classes have labelled images that count; give more labels"
            )
            raise AnchorageError(MOMENTS_UNUSABLE, message)
        if not on_trial():  # where components that nobody has found yet are 0
            require_difference(every[0])
        has_pseudo_labels = slot.has_guessers(network, server_round.draws.round)
        drawn = server_round.draws.torch("synthetic features")
        with torch.no_grad():
            heads = [
                classifier_of(moments, slot, drawn, slot.shrinkage_of(recipe, has_pseudo_labels=has_pseudo_labels))
                for recipe, moments in zip(slot.recipes, every, strict=True)
            ]
            chosen, metrics = self._choice(server_round, heads)
            _store(network, heads[chosen])
            self._hand_on(server_round, heads, every, chosen)
        absent = every[chosen].labelled == 0
        return {"absent_classes": float(absent.sum()), **metrics}

    def _moments(self, server_round: ServerRound) -> list[Moments]:
        """Return the moments of the silos and of the anchors, by every recipe."""
        import torch

        from anchorage.algorithms.moments import Moments

        second, anchors = self._slot.second, server_round.anchors
        known: Moments | None = server_round.computed.get(ANCHORS)
        if anchors is not None and known is None:
            known = moments_of(server_round.network, anchors.views, anchors.indices, anchors.labels, second)
            server_round.computed[ANCHORS] = known
        silo_moments, seconds = [], dict[str, "Tensor"]()
        for recipe in self._slot.recipes:
            parts: dict[str, NDArray[np.float64]] = {
                part: server_round.extra_tensors[recipe.tensor(part)] for part in PARTS
            }
            name = recipe.tensor("seconds")
            if name in seconds:  # a matrix that another recipe has, too
                counts, sums = (torch.from_numpy(np.array(parts[part])) for part in ("counts", "sums"))
                of_silos = Moments(counts, sums, seconds[name], second)
            else:
                of_silos = Moments.from_arrays(parts, second)
                seconds[name] = of_silos.seconds
            silo_moments.append(of_silos if known is None else of_silos + known)
        return silo_moments

    def _choice(self, server_round: ServerRound, heads: Sequence[Parameters]) -> tuple[int, Mapping[str, float]]:
        """Return which classifier the model gets, and the balanced accuracy on validation images of each where there are several.

        It is that of the classifier as the model stores it, in float32.
        """
        import torch

        from anchorage.algorithms.guesses import compare

        if len(heads) == 1:
            return 0, {}
        z, labels = self._validation(server_round)
        classifier, scores = server_round.network.classifier, list["Tensor"]()
        for head in heads:
            _store(server_round.network, head)
            scores.append(classifier(z).cpu())
        comparison = compare(torch.stack(scores), labels)
        names = [recipe.name for recipe in self._slot.recipes]
        accuracies = zip(names, comparison.accuracies, strict=True)
        return comparison.chosen, {GUESSES_CHOSEN: comparison.chosen} | {
            GUESSES + name: value for name, value in accuracies
        }

    def _validation(self, server_round: ServerRound) -> tuple[Tensor, Tensor]:
        """Return the features of the validation images, float32 [n, d], on the network's device, and their classes, int64 [n] on the CPU."""
        import torch

        network, images = server_round.network, server_round.validation
        assert images is not None, "checked with the documents"
        features: Tensor | None = server_round.computed.get(VALIDATION)
        if features is None:
            views = images.views
            features = views.map_batches(images.indices, lambda i: network.represent(views.plain(i)))
            server_round.computed[VALIDATION] = features
        return features, torch.from_numpy(images.labels)

    def _hand_on(
        self, server_round: ServerRound, heads: Sequence[Parameters], every: Sequence[Moments], chosen: int
    ) -> None:
        """Have the model carry the classifiers by which silos guess in the next round, without the prior of labelled images, and their confusion."""
        import torch

        from anchorage.algorithms.guesses import confusion
        from anchorage.algorithms.guessing_heads import guessers_of

        slot, guessers = self._slot, guessers_of(server_round.network)
        if guessers is None:
            return
        guessing = [index for index, recipe in enumerate(slot.recipes) if recipe.shares]
        for place, index in enumerate(guessing):
            present, prior = every[index].labelled > 0, every[index].log_prior(uniform=slot.prior == "Uniform")
            weight, bias = heads[index]["weight"], heads[index]["bias"] - torch.where(present, prior, 0.0)
            guessers.weight[place].copy_(weight)
            guessers.bias[place].copy_(bias)
            if slot.recipes[index].shares == "Measured":
                z, labels = self._validation(server_round)
                guessers.confusion[place].copy_(confusion(guessers(z)[place].argmax(1).cpu(), labels, len(bias)))
        guessers.chosen.fill_(chosen)


def require_difference(moments: Moments) -> None:
    """Refuse features that are alike for all images.

    Raises
    ------
    AnchorageError
        MOMENTS_UNUSABLE.
    """
    if moments.alike():
        message = "the encoder makes the same of every image but for rounding; begin with pretrained weights, or choose another network"
        raise AnchorageError(MOMENTS_UNUSABLE, message)


def _store(network: Network, head: Parameters) -> None:
    """Have the network's classifier be one, rounded to float32."""
    for name, values in head.items():
        getattr(network.classifier, name).copy_(values)


ANCHORS, VALIDATION = "moments of the anchors", "features of the validation images"
"""Keys of what `ServerRound.computed` has of these."""


def moments_of(
    network: Network, views: Views, indices: NDArray[np.int64], labels: NDArray[np.int64], second: Second
) -> Moments:
    """Return the moments of plain images in eval mode, batch by batch.

    Parameters
    ----------
    network : Network
        Its features are what the classifier sees.
    views, indices : Views, ndarray of int64, shape [n]
        Which images; at least one.
    labels : ndarray of int64, shape [n]
        Their classes, -1 without.
    second : Second
        Which second moments.
    """
    import torch

    from anchorage.algorithms.moments import Moments

    total, start, classes = None, 0, network.linear.out_features
    with torch.no_grad():
        for batch in views.over(indices):
            known = views.to_device(labels[start : start + len(batch)])
            start += len(batch)
            batch_moments = Moments.of(network.represent(views.plain(batch)), known, classes, second)
            total = batch_moments if total is None else total + batch_moments
    assert total is not None, "there is an image"
    return total


def pooled_moments(network: Network, views: Views, indices: NDArray[np.int64]) -> Moments:
    """Return the moments of the embeddings of plain images, without classes: counts [1], sums [1, width] and pooled second moments."""
    import torch

    from anchorage.algorithms.moments import Moments

    total: Moments | None = None
    with torch.no_grad():
        for batch in views.over(indices):
            z = network.embed(views.plain(batch)).double()
            batch_moments = Moments(
                torch.tensor([len(z)]).double(), z.sum(0, keepdim=True).cpu(), (z.T @ z).cpu(), "Pooled"
            )
            total = batch_moments if total is None else total + batch_moments
    assert total is not None, "there is an image"
    return total


def classifier_of(
    moments: Moments, options: MomentOptions, drawn: torch.Generator | None = None, shrinkage: float | None = None
) -> Mapping[str, Tensor]:
    """Return the classifier's parameters by name, float64; a class without images scores `ABSENT` everywhere.

    Features may be of any size: the networks of libraries that nobody trained have some of 1e-10, of which the variance is nothing beside `JITTER`.
    `drawn` is where FisherMix and ProtoHyper draw features from; `shrinkage` takes the place of the options' one.
    """
    import torch

    from anchorage.algorithms.moments import ABSENT, discriminant, naive_bayes, quadratic_discriminant

    shrinkage, present = float(options.shrinkage) if shrinkage is None else shrinkage, moments.labelled > 0
    unit = moments.unit()
    moments = moments.in_units(unit)
    prior = moments.log_prior(uniform=options.prior == "Uniform")
    if options.head == "Qda":
        classifier = quadratic_discriminant(moments, prior, shrinkage)
    elif options.head == "NaiveBayes":
        classifier = naive_bayes(moments, prior, FEW)
    elif options.head == "Ridge":
        scale = float(moments.total().diagonal().mean() * moments.counts.sum())
        classifier = dict(zip(("weight", "bias"), moments.ridge(shrinkage * scale), strict=True))
    elif options.head in ("FisherMix", "ProtoHyper"):
        from anchorage.algorithms.synthetic_heads import synthetic_head

        assert drawn is not None, "the server's training has it"
        with torch.enable_grad():
            trained = synthetic_head(moments, prior, shrinkage, drawn, distilled=options.head == "ProtoHyper")
        classifier = dict(zip(("weight", "bias"), trained, strict=True))
    else:
        covariance = moments.total() if options.head == "Total" else moments.within()
        head = discriminant(moments.means(), covariance, prior, shrinkage)
        classifier = dict(zip(("weight", "bias"), head, strict=True))
    classifier["bias"] = torch.where(present, classifier["bias"], ABSENT)
    if "scale" in classifier:  # whose weight is the means
        return classifier | {"weight": classifier["weight"] * unit, "scale": classifier["scale"] / unit}
    return classifier | {"weight": classifier["weight"] / unit}
