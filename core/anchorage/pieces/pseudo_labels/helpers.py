"""FedMatch: weights are sums of a supervised and a sparse part; the silos most like one's own help to label (methods reference, 6.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction, PositiveDecimal
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.learning.randomness import generator
from anchorage.pieces.pseudo_labels.by_confidence import ByConfidence
from anchorage.pieces.pseudo_labels.class_adaptive import previous_round
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.joined import JoinedSource, Stretch
from anchorage.transport.tensors.layout import BUFFERS, HELPER, PSI, Layout

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.api.plan import Plan
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.transport.tensors.chunks import ChunkSource
    from anchorage.transport.tensors.model import ModelBytes

NOISE_IMAGE = "noise-image"


@piece("helpers")
class Helpers(ByConfidence):
    """FedMatch: labels train one part of every weight, agreement with similar silos' models the other one (Jeong et al. 2021)."""

    needs_network: ClassVar[bool] = True

    threshold: Fraction = Field(
        "0.75",
        description="Minimum confidence (largest class probability) of an accepted pseudo-label. Lower it to accept more labels, raise it "
        "to accept fewer wrong ones.",
    )
    helpers: Annotated[int, Field(ge=1, le=8)] = Field(
        2, description="Number of most similar silos whose parts psi help to label images."
    )
    every: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10, description="Number of rounds between those in which helpers are sent."
    )
    supervised_weight: PositiveDecimal = Field("10", description="Factor of the loss on labelled images.")
    consistency_weight: PositiveDecimal = Field(
        "0.01",
        description="Factor of the consistency losses on unlabelled images: pseudo-labels on strong views, and agreement with the helpers.",
    )
    closeness: PositiveDecimal = Field(
        "10", description="Factor of the squared distance between the two parts of the weights, sigma and psi."
    )
    sparsity: PositiveDecimal = Field(
        "0.0001", description="Factor of the L1 norm of psi. A larger value makes psi sparser."
    )
    smallest: PositiveDecimal = Field(
        "0.000005", description="Magnitude up to which an entry of psi becomes 0 after training."
    )
    smallest_change: PositiveDecimal = Field(
        "0.00005",
        description="Change up to which an entry goes back to its received value after training, and is not sent.",
    )

    def facts(self) -> frozenset[str]:
        """Say that weights have two parts."""
        return super().facts() | {Fact.WEIGHTS_IN_PARTS}

    def needs(self) -> Sequence[Need]:
        """Need rounds, and updates that are averaged as they are."""
        message = (
            "found helpers with a weighting of another kind, but its own terms hold the parts of a weight together; "
            "set weighting: uniform or sampleCount"
        )
        variates = (
            "found helpers, which drops small changes after training, but control variates are of plain steps; "
            "set serverStep: {replace: {}}, or other pseudo-labels"
        )
        frozen = "found helpers, which trains two parts of every weight, but model.trainable freezes some; set All"
        return (
            previous_round(self.name),
            Need(Fact.FROZEN_PARTS, frozen, refused=True),
            Need(Fact.PLAIN_WEIGHTS, message, path=("spec", "method", "weighting")),
            Need(Fact.CONTROL_VARIATES, variates, refused=True),
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse weight decay: it would pull both parts of a weight to 0 in every step of either."""
        optimiser = plan.method.local.optimiser
        decay = getattr(optimiser, "weight_decay", "0")
        if optimiser is not None and float(decay):
            message = (
                f"found {decay}, but a decay would pull both parts of a weight to 0 in every step of either; set 0"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, optimiser.option("weightDecay"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return helpers' parts and the embedding."""
        return (
            AuxiliaryArray("helpers", "[] int64", "how many helpers' parts are behind the model"),
            AuxiliaryArray("helper*.*", "as psi", "the unsupervised parts of the silo's helpers, behind the model"),
            AuxiliaryArray(
                "embedding", "[C] float64", "the model's class probabilities for one shared image of noise", up=True
            ),
        )

    def weights_drawn(self, network: Network) -> None:
        """Give every weight its second part."""
        from anchorage.algorithms.decomposition import NAME, Psi

        network.add_head(NAME, Psi(network), optional=True)

    def adopted(self, network: Network, loaded_names: frozenset[str]) -> None:
        """Begin psi anew where the model that was taken over has none."""
        from anchorage.algorithms.decomposition import psi_of

        psi = psi_of(network)
        if psi is not None and not any(name.startswith(PSI) for name in loaded_names):
            psi.restart(network)

    def before_scoring(self, server_round: ServerRound, network: Network) -> None:
        """Add the parts up."""
        from anchorage.algorithms.decomposition import fold

        fold(network)

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave sigma at the server where it alone has labels."""
        if not getattr(method.server_training, "trains", False):
            return layout
        return layout.select(t.name for t in layout.tensors if t.name.startswith(PSI) or t.name.endswith(BUFFERS))

    def task_layout(self, down: Layout) -> Layout:
        """Return the global model's layout, and behind it room for every helper's unsupervised part."""
        network_tensors = [(t.name, t.dtype, t.shape) for t in down.tensors]
        parts = [t for t in down.tensors if t.name.startswith(PSI)]
        helpers = range(self.helpers)
        return Layout.of(
            [*network_tensors, *((helper_name(h, t.name), t.dtype, t.shape) for h in helpers for t in parts)]
        )

    def memory(self, task: Task, seed: int) -> HelperModels:
        """Remember an embedding of every silo's model."""
        return HelperModels(self, len(task.outputs))

    def server_losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor]:
        """Return the loss of plain anchors, whose gradient reaches sigma alone."""
        from anchorage.algorithms.decomposition import sigma_losses

        weight = float(self.supervised_weight)
        return sigma_losses(server_round.network, server_round.needed, batching, server_round.draws, weight)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return, for every step, the loss of sigma on labelled images, if there are any, and the loss of psi on unlabelled ones."""
        from anchorage.learning.silo_round import Work

        losses = HelperLosses(self, silo_round)
        counts, accepted = silo_round.counts(), losses.accepted.labels
        selected, embedding = lambda: losses.selected, losses.embedding
        return Work(iter(losses), losses.steps, counts, selected, embedding, accepted=accepted)


def helper_name(index: int, tensor: str) -> str:
    """Return the name under which a helper's `psi.NAME` travels to a silo."""
    return f"{HELPER}{index}.{tensor.removeprefix(PSI)}"


class HelperModels(RoundMemory):
    """Remembers an embedding of every silo's model and picks each silo's helpers by it.

    Reads ``auxiliary_data["embedding"]``, float64 of shape [C]: the silo's class probabilities for one image of noise that all share. What is sent
    down is different for every silo, see `model_for`.

    Parameters
    ----------
    slot : Helpers
        How many helpers, and how often.
    num_classes : int
        Classes C.
    """

    keeps_updates = sparse_updates = True

    def __init__(self, slot: Helpers, num_classes: int) -> None:
        self._slot, self._num_classes = slot, num_classes
        self._embeddings: dict[str, NDArray[np.float64]] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the embeddings of this round; those of another shape or dtype, or not finite, are left out."""
        for silo, announcement in announcements.items():
            embedding = announcement.auxiliary_data.get("embedding")
            known = embedding is not None and embedding.dtype == np.float64 and embedding.shape == (self._num_classes,)
            if embedding is not None and known and np.isfinite(embedding).all():
                self._embeddings[silo] = embedding

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the embeddings by silo."""
        return dict(self._embeddings)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take embeddings that `state` returned."""
        self._embeddings = {silo: array.astype(np.float64) for silo, array in state.items()}

    def helpers_of(self, silo: str, known: Collection[str]) -> list[str]:
        """Return the silos among `known` whose embeddings are nearest to this one's, ties by name; none for a silo that was never seen."""
        own_embedding = self._embeddings.get(silo)
        if own_embedding is None:
            return []
        others = [other for other in known if other != silo and other in self._embeddings]
        distance = {other: float(np.linalg.norm(self._embeddings[other] - own_embedding)) for other in others}
        return sorted(others, key=lambda other: (distance[other], other))[: self._slot.helpers]

    def model_for(
        self, silo: str, round_number: int, model: ModelBytes, up: Layout, updates: Mapping[str, ChunkSource]
    ) -> tuple[ChunkSource, AuxiliaryData]:
        """Return a silo's model with its helpers' parts behind it in every tenth round, and ``helpers``, int64: how many there are.

        It then has the layout of `Helpers.task_layout`; where only some helpers are missing, the global model's own part stands in their place. In
        the other rounds, and for a silo without any helper, it is the global model alone.
        """
        helpers = self.helpers_of(silo, updates) if round_number % self._slot.every == 0 else []
        if not helpers:
            return model, {"helpers": np.array(0)}
        stretches = [Stretch(model, 0, model.layout.nbytes)]
        for index in range(self._slot.helpers):
            source, layout = (updates[helpers[index]], up) if index < len(helpers) else (model, model.layout)
            parts = [t for t in layout.tensors if t.name.startswith(PSI)]
            stretches += [Stretch(source, t.offset, t.offset + t.nbytes) for t in parts]
        joined = JoinedSource(self._slot.task_layout(model.layout).digest, stretches)
        return joined, {"helpers": np.array(len(helpers))}


class HelperLosses:
    """Yields both losses of every step, and drops small changes behind the last one: of psi, and of sigma where labels trained it.

    Parameters
    ----------
    slot : Helpers
        Factors and thresholds.
    silo_round : SiloRound
        The round; its model came with the helpers' parts.
    """

    def __init__(self, slot: Helpers, silo_round: SiloRound) -> None:
        from anchorage.algorithms.decomposition import Parts
        from anchorage.algorithms.pseudo_labels import Accepted
        from anchorage.learning.local_training import Batching

        self._work = work = silo_round
        self._split = slot
        self._parts = Parts(work.network)
        self._received = [_copies(part) for part in (self._parts.psi, self._parts.sigma)]
        self._helpers = [
            self._parts.with_psi(self._helper(i)) for i in range(int(work.auxiliary("helpers")["helpers"]))
        ]
        self.accepted, self._images_used = Accepted(), 0
        labelled, unlabelled = len(work.images.labelled), len(work.images.unlabelled)
        local = work.local(labelled=labelled > 0)
        smallest = work.batching().smallest
        self._known = Batching(local.epochs, local.batch_size, smallest)
        self._unknown = Batching(local.epochs, work.local(labelled=False).batch_size, smallest)
        leading, size = (labelled, self._known.size) if labelled else (unlabelled, self._unknown.size)
        self._epoch = min(
            self._once(leading, size), max(1, round(leading / size))
        )  # the public code rounds half to even
        self.steps = local.epochs * self._epoch * (int(labelled > 0) + int(unlabelled > 0))

    def _once(self, count: int, size: int) -> int:
        from anchorage.learning.local_training import Batching

        return Batching(1, size, self._known.smallest).steps(count)

    @property
    def selected(self) -> int:
        """Unlabelled images that were confident enough in the last epoch, which may look at them several times or at some of them only."""
        return (
            round(len(self.accepted) * len(self._work.images.unlabelled) / self._images_used)
            if self._images_used
            else 0
        )

    def __iter__(self) -> Iterator[Tensor]:

        from anchorage.algorithms.decomposition import sparsify
        from anchorage.learning.local_training import Batching

        images, known, unknown = self._work.images, self._known, self._unknown
        order, other = self._work.draws.numpy("batches"), self._work.draws.numpy("batches-unlabelled")
        augmentation = self._work.draws.torch("augmentation")
        endless = _endless(unknown, len(images.unlabelled), other)
        for _ in range(known.epochs):
            self.accepted.begin()
            self._images_used = 0
            once = Batching(1, known.size, known.smallest)
            labelled = once.positions(len(images.labelled), order) if len(images.labelled) else repeat(None)
            for positions in islice(labelled, self._epoch):
                if positions is not None:
                    yield self._supervised_loss(images.labelled[positions])
                if (batch := next(endless, None)) is not None:
                    yield self._unsupervised_loss(images.unlabelled[batch], augmentation)
        psi, sigma = self._received
        sparsify(self._parts.psi, psi, float(self._split.smallest_change), float(self._split.smallest))
        sparsify(self._parts.sigma, sigma, float(self._split.smallest_change))

    def _supervised_loss(self, indices: NDArray[np.int64]) -> Tensor:
        from torch.nn import functional

        images = self._work.images
        views, labels = images.views, images.views.to_device(images.labels[indices])
        logits = self._parts.train_sigma(views.plain(views.to_device(indices)))
        return float(self._split.supervised_weight) * functional.cross_entropy(logits, labels)

    def _unsupervised_loss(self, indices: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        from torch.nn import functional

        from anchorage.algorithms.decomposition import agreement, penalty, vote

        split, parts, views = self._split, self._parts, self._work.images.views
        pulls = penalty(parts.sigma, parts.psi, float(split.closeness), float(split.sparsity))
        self._images_used += len(indices)
        chosen = views.to_device(indices)
        own_probabilities = parts.train_psi(views.plain(chosen)).softmax(1)
        keep = own_probabilities.detach().amax(1) >= float(self._split.threshold)
        places = keep.nonzero()[:, 0]  # the one thing that a step has to wait for: how large its batch is
        if len(places) < self._known.smallest:
            return pulls
        confident = chosen[places]
        helpers = [parts.probabilities(weights, views.plain(confident)) for weights in self._helpers]
        labels, _ = vote(own_probabilities.detach()[places], helpers)
        self.accepted.add(confident, labels, keep[places])
        taught = functional.cross_entropy(parts.train_psi(views.strong(confident, augmentation)), labels)
        return pulls + float(split.consistency_weight) * (taught + agreement(own_probabilities[places], helpers))

    def _helper(self, index: int) -> dict[str, Tensor]:
        import torch

        device = self._work.images.views.device
        arrays = {
            name: self._work.received[helper_name(index, PSI + name.replace(".", "/"))] for name in self._parts.psi
        }
        return {name: torch.from_numpy(array.copy()).to(device) for name, array in arrays.items()}

    def embedding(self) -> AuxiliaryData:
        """Return the class probabilities of one image of noise that all silos share, by the trained model; float64 [C]."""
        import torch

        run, views = self._work.run, self._work.images.views
        shape = (1, run.model.channels, run.model.image_size, run.model.image_size)
        noise = torch.from_numpy(generator(run.seed, NOISE_IMAGE).standard_normal(shape).astype(np.float32))
        weights = self._parts.with_psi({name: p.detach() for name, p in self._parts.psi.items()})
        return {"embedding": self._parts.probabilities(weights, noise.to(views.device))[0].double().cpu().numpy()}


def _copies(part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in part.items()}


def _endless(batching: Batching, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield batches of positions 0..count-1, shuffled anew after each pass; none where a pass has none."""
    from anchorage.learning.local_training import Batching

    once = Batching(1, batching.size, batching.smallest)
    return chain.from_iterable(once.positions(count, rng) for _ in repeat(None)) if once.steps(count) else iter(())
