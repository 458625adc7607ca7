"""FedMatch: labels train sigma; agreement with other silos' models on unlabelled images trains a sparse psi (METHODS.md 6.6)."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice, repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.engine.aggregation.helper_models import helper_name
from anchorage.learning.decomposition import Parts, agreement, penalty, sparsify, vote
from anchorage.learning.local_training import Batching
from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.randomness import generator
from anchorage.transport.messages import SideChannel
from anchorage.transport.tensors.layout import PSI

NOISE_IMAGE = "noise-image"


def by_helpers(work: RoundWork) -> Work:
    """Return, for every step, the loss of sigma on labelled images, if there are any, and the loss of psi on unlabelled ones."""
    losses = HelperLosses(work)
    return Work(iter(losses), losses.steps, work.counts(), lambda: losses.selected, losses.embedding)


class HelperLosses:
    """Yields both losses of every step, and drops small changes behind the last one: of psi, and of sigma where labels trained it.

    Parameters
    ----------
    work : RoundWork
        The round; its model came with the helpers' parts.
    """

    def __init__(self, work: RoundWork) -> None:
        self._work, self._split = work, work.run.method.decomposition
        self._parts = Parts(work.network)
        self._received = [_copies(part) for part in (self._parts.psi, self._parts.sigma)]
        self._helpers = [
            self._parts.fixed(self._helper(i)) for i in range(int(work.received_side("helpers")["helpers"]))
        ]
        self._kept = torch.zeros((), dtype=torch.int64, device=work.images.views.device)
        labelled, unlabelled = len(work.images.labelled), len(work.images.unlabelled)
        local = work.run.method.local.of(labelled=labelled > 0)
        smallest = work.batching().smallest
        self._known = Batching(local.epochs, local.batch_size, smallest)
        self._unknown = Batching(local.epochs, work.run.method.local.of(labelled=False).batch_size, smallest)
        leading, size = (labelled, self._known.size) if labelled else (unlabelled, self._unknown.size)
        self._epoch = min(
            self._once(leading, size), max(1, round(leading / size))
        )  # the public code rounds half to even
        self.steps = local.epochs * self._epoch * (int(labelled > 0) + int(unlabelled > 0))

    def _once(self, count: int, size: int) -> int:
        return Batching(1, size, self._known.smallest).steps(count)

    @property
    def selected(self) -> int:
        """Images of the last epoch that were confident enough."""
        return int(self._kept)

    def __iter__(self) -> Iterator[Tensor]:
        images, known, unknown = self._work.images, self._known, self._unknown
        order, other = self._work.draws.numpy("batches"), self._work.draws.numpy("batches-unlabelled")
        augmentation = self._work.draws.torch("augmentation")
        endless = _endless(unknown, len(images.unlabelled), other)
        for _ in range(known.epochs):
            self._kept = torch.zeros_like(self._kept)
            once = Batching(1, known.size, known.smallest)
            labelled = once.positions(len(images.labelled), order) if len(images.labelled) else repeat(None)
            for positions in islice(labelled, self._epoch):
                if positions is not None:
                    yield self._supervised(images.labelled[positions])
                if (guessed := next(endless, None)) is not None:
                    yield self._unsupervised(images.unlabelled[guessed], augmentation)
        psi, sigma = self._received
        sparsify(self._parts.psi, psi, float(self._split.smallest_change), float(self._split.smallest))
        sparsify(self._parts.sigma, sigma, float(self._split.smallest_change))

    def _supervised(self, indices: NDArray[np.int64]) -> Tensor:
        images = self._work.images
        views, labels = images.views, images.views.to_device(images.labels[indices])
        logits = self._parts.train_sigma(views.plain(views.to_device(indices)))
        return float(self._split.supervised_weight) * functional.cross_entropy(logits, labels)

    def _unsupervised(self, indices: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        split, parts, views = self._split, self._parts, self._work.images.views
        pulls = penalty(parts.sigma, parts.psi, split)
        chosen = views.to_device(indices)
        own = parts.train_psi(views.plain(chosen)).softmax(1)
        keep = own.detach().amax(1) >= float(self._work.run.method.pseudo_labels.threshold)
        places = keep.nonzero()[:, 0]  # the one thing that a step has to wait for: how large its batch is
        if len(places) < self._known.smallest:
            return pulls
        self._kept += len(places)
        kept = chosen[places]
        helpers = [parts.probabilities(weights, views.plain(kept)) for weights in self._helpers]
        labels, _ = vote(own.detach()[places], helpers)
        taught = functional.cross_entropy(parts.train_psi(views.strong(kept, augmentation)), labels)
        return pulls + float(split.consistency_weight) * (taught + agreement(own[places], helpers))

    def _helper(self, index: int) -> dict[str, Tensor]:
        device = self._work.images.views.device
        arrays = {
            name: self._work.received[helper_name(index, PSI + name.replace(".", "/"))] for name in self._parts.psi
        }
        return {name: torch.from_numpy(array.copy()).to(device) for name, array in arrays.items()}

    def embedding(self) -> SideChannel:
        """Return the class probabilities of one image of noise that all silos share, by the trained model; float64 [C]."""
        run, views = self._work.run, self._work.images.views
        shape = (1, run.model.channels, run.model.image_size, run.model.image_size)
        noise = torch.from_numpy(generator(run.seed, NOISE_IMAGE).standard_normal(shape).astype(np.float32))
        weights = self._parts.fixed({name: p.detach() for name, p in self._parts.psi.items()})
        return {"embedding": self._parts.probabilities(weights, noise.to(views.device))[0].double().cpu().numpy()}


def _copies(part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in part.items()}


def _endless(batching: Batching, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield batches of positions 0..count-1, shuffled anew after each pass; none where a pass has none."""
    once = Batching(1, batching.size, batching.smallest)
    return chain.from_iterable(once.positions(count, rng) for _ in repeat(None)) if once.steps(count) else iter(())
