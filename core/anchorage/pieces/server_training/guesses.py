"""How a silo counts its images to the class moments: those without labels not at all, or as what it guesses them to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchorage.pieces.pseudo_labels.calibrated import unlabelled_shares
from anchorage.pieces.server_training.recipes import PARTS
from anchorage.transport.tensors.layout import MOMENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.pieces.server_training.moment_options import MomentOptions
    from anchorage.pieces.server_training.recipes import Recipe


@dataclass(frozen=True)
class Counted:
    """How much of each image counts to each class, by one recipe."""

    recipe: Recipe
    members: Tensor
    """Float64 [n, C + 1] of the images to train on; the last column is that of images without a label, of which only the covariance is learnt."""

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which images count, bool [n]."""
        return self.members.any(1).numpy()


def silo_moments(slot: MomentOptions, silo_round: SiloRound) -> Work:
    """Return the moments of a silo's images by every recipe, without a step."""
    from anchorage.learning.silo_round import Work

    images = silo_round.images
    every = counted_by(slot, silo_round)
    labels = images.labels[images.train]
    used = np.any([counted.used for counted in every], axis=0)
    groups = [counted.members.sum(0) for counted in every]
    smallest = min((float(group[group > 0].min()) for group in groups if group.any()), default=0.0)
    samples = {
        "train": int(used.sum()),
        "labelled": int((used & (labels >= 0)).sum()),
        "unlabelled": int((used & (labels < 0)).sum()),
        "smallest_group": int(smallest),
    }
    arrays = sum_moments(slot, silo_round, every, used) if used.any() else None
    labelled = np.bincount(labels[labels >= 0], minlength=silo_round.run.model.num_outputs)
    metrics = {"withheld_classes": float(((labelled > 0) & (groups[0][:-1].numpy() == 0)).sum())}
    chosen = every[slot.chosen_recipe(silo_round.network)]
    pseudo_labelled = np.flatnonzero((labels < 0) & chosen.members[:, :-1].any(1).numpy())
    accepted = images.train[pseudo_labelled], chosen.members[pseudo_labelled, :-1].argmax(1).numpy()
    return Work(
        iter(()),
        0,
        samples,
        selected=lambda: len(pseudo_labelled),
        untrained=arrays,
        metrics=lambda: metrics,
        accepted=(lambda: accepted) if len(pseudo_labelled) else None,
    )


def counted_by(slot: MomentOptions, silo_round: SiloRound) -> Sequence[Counted]:
    """Return how each recipe counts the images to train on.

    Nothing is guessed before a classifier came, and where every image has a label.
    """
    import torch

    from anchorage.algorithms.guesses import correct_logits, members

    images, network = silo_round.images, silo_round.network
    labels = torch.from_numpy(images.labels[images.train])
    known = _of_labels(slot, labels, silo_round.run.model.num_outputs)
    guessing = [recipe for recipe in slot.recipes if recipe.shares and _can_guess(recipe, silo_round)]
    if not guessing or not len(images.unlabelled) or not slot.has_guessers(network, silo_round.draws.round):
        return [Counted(recipe, known) for recipe in slot.recipes]
    scores = images.views.map_batches(images.train, lambda i: slot.guess(network, images.views.plain(i)).movedim(0, 1))
    unlabelled = (labels < 0).to(scores.device)
    counted, place = [], 0
    for recipe in slot.recipes:
        if recipe not in guessing:
            counted.append(Counted(recipe, known))
            continue
        densities = scores[:, place].double()
        shares = _shares(recipe, silo_round, place, densities[unlabelled])
        place += 1
        guesses = densities / recipe.temperature
        guesses[unlabelled] = correct_logits(densities[unlabelled], recipe.temperature, shares)
        counts = members(guesses, labels.to(densities.device), slot.minimum_count, slot.counting).cpu()
        counted.append(Counted(recipe, torch.cat([counts, counts.new_zeros(len(counts), 1)], 1)))
    return counted


def _shares(recipe: Recipe, silo_round: SiloRound, place: int, scores: Tensor) -> Tensor | None:
    """Return the class shares of a silo's unlabelled images, float64 [C]; None: their densities tell. `place` is that of the recipe's head."""
    from anchorage.algorithms.guesses import measured_shares
    from anchorage.algorithms.guessing_heads import guessers_of

    images, guessers = silo_round.images, guessers_of(silo_round.network)
    if recipe.shares == "Stated" and images.stated_counts is not None:
        return unlabelled_shares(images)
    if recipe.shares == "Measured":
        assert guessers is not None, "the model carries it with the heads"
        return measured_shares(scores.argmax(1), guessers.confusion[place])
    return None


def _can_guess(recipe: Recipe, silo_round: SiloRound) -> bool:
    """Return whether a silo has shares for a recipe. One of several takes estimates where the silo states no counts."""
    return recipe.shares != "Stated" or bool(recipe.name) or silo_round.images.stated_counts is not None


def _of_labels(slot: MomentOptions, labels: Tensor, classes: int) -> Tensor:
    """Return how images count by their labels alone, float64 [n, C + 1]: a class of too few images not at all."""
    import torch
    from torch.nn import functional

    members = functional.one_hot(torch.where(labels < 0, classes, labels), classes + 1).double()
    members[:, :-1] *= members[:, :-1].sum(0) >= slot.minimum_count
    members[:, -1] *= float(slot.head == "Total")
    return members


def sum_moments(
    slot: MomentOptions, silo_round: SiloRound, every: Sequence[Counted], used: NDArray[np.bool_]
) -> Mapping[str, NDArray[np.float64]]:
    """Return the moments of a silo's images by the names of their tensors.

    Pooled second moments depend only on which images count, so they are kept from round to round.
    """
    import torch

    from anchorage.algorithms.moments import Moments, second_moments

    images, network, pooled = silo_round.images, silo_round.network, slot.second == "Pooled"
    totals_by_mask: dict[bytes, Tensor] = images.computed.setdefault(MOMENTS, {})
    keys = {counted.recipe.tensor("seconds"): counted for counted in every}
    due = {name: each for name, each in keys.items() if not (pooled and each.used.tobytes() in totals_by_mask)}
    totals: dict[str, Tensor] = {}

    def add(name: str, value: Tensor) -> None:
        totals[name] = totals[name] + value if name in totals else value

    rows, start = np.flatnonzero(used), 0
    with torch.no_grad():
        for batch in images.views.over(images.train[rows]):
            part = rows[start : start + len(batch)]
            start += len(batch)
            z = network.represent(images.views.plain(batch)).double()
            for counted in every:
                members = counted.members[part].to(z.device)
                add(counted.recipe.tensor("counts"), members.sum(0).cpu())
                add(counted.recipe.tensor("sums"), (members.T @ z).cpu())
            for name, counted in due.items():
                add(name, second_moments(z, counted.members[part].to(z.device), slot.second).cpu())
    if pooled:
        totals_by_mask |= {counted.used.tobytes(): totals[name] for name, counted in due.items()}
        totals |= {name: totals_by_mask[counted.used.tobytes()] for name, counted in keys.items()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for recipe in slot.recipes:
        counts, sums, seconds = (recipe.tensor(part) for part in PARTS)
        if seconds not in arrays:
            arrays[seconds] = Moments(totals[counts], totals[sums], totals[seconds], slot.second).arrays()["seconds"]
        arrays |= {counts: totals[counts].numpy(), sums: totals[sums].numpy()}
    return arrays
