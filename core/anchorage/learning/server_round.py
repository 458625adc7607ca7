"""What the server's training of one round starts from."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.model import ModelDescription
from anchorage.api.piece import expect
from anchorage.learning.draws import Draws
from anchorage.learning.hooks import LearningHooks
from anchorage.learning.local_training import Batching, Labelled
from anchorage.learning.loss_checks import checked_losses, sample_outputs
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.network import Network
from anchorage.learning.weights import load_model, network_arrays
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class ServerRound:
    """The network at the server with the anchors, round after round.

    Parameters
    ----------
    model : ModelDescription
        The network's document.
    method : TrainingMethod
        The method.
    network : Network
        What is trained.
    down : Layout
        Layout of the global model.
    anchors : Labelled or None
        Labelled images at the server.
    seed : int
        The run's seed.
    validation : Labelled or None
        Labelled images that nothing is trained on, for pieces that set thresholds by them.
    """

    def __init__(
        self,
        model: ModelDescription,
        method: TrainingMethod,
        network: Network,
        down: Layout,
        anchors: Labelled | None,
        seed: int,
        validation: Labelled | None = None,
    ) -> None:
        self.model, self.method, self.network = model, method, network
        self.down, self.anchors, self.seed, self.validation = down, anchors, seed, validation
        self.before_rounds()
        self.momentum: dict[Tensor, Tensor] = {}
        self.extra_tensors: Mapping[str, NDArray[Any]] = {}
        """Tensors of the round's aggregated model that are no part of the network."""
        self.computed: dict[str, Any] = {}
        """What pieces compute once, by a name of their own."""

    @property
    def task(self) -> TaskHooks:
        """The run's task, as the anchors' masks tell of it."""
        unannotated = () if self.anchors is None else self.anchors.unannotated
        return expect(self.model.task, TaskHooks).partly_annotated(unannotated)

    def before_rounds(self) -> None:
        """Draw as before round 1."""
        self.draws, self.over, self.done = Draws(self.seed), 0, 0.0

    def begin(self, model: ModelBytes, round_number: int, rounds: int, after: int) -> None:
        """Take a round's aggregated model.

        Parameters
        ----------
        model : ModelBytes
            The global model.
        round_number : int
            The round, from 1.
        rounds : int
            The method's last round; 0 where it is not known.
        after : int
            The last round of the stage before.
        """
        self.take(model)
        arrays = model.arrays()
        self.extra_tensors = {name: arrays[name] for name in arrays.keys() - network_arrays(arrays).keys()}
        self.draws = Draws(self.seed, round_number)
        self.over = round_number - 1 - after
        self.done = self.over / (rounds - after) if rounds else 0.0

    def take(self, model: ModelBytes) -> None:
        """Have the network be a model."""
        load_model(self.network, model)
        for images in (self.anchors, self.validation):
            if images is not None:
                images.views.encoded_by(self.network)

    def check_losses(self, piece: LearningHooks, hook: str, losses: Iterable[Tensor]) -> Iterator[Tensor]:
        """Return the losses that a piece's hook returned for the anchors, checked; see `checked_losses`."""
        anchors, network = self.needed, self.network
        return checked_losses(losses, piece, hook, lambda: sample_outputs(network, anchors.views, anchors.indices))

    @property
    def needed(self) -> Labelled:
        """The anchors, of a method that needs them."""
        assert self.anchors is not None, "checked when the learner was made"
        return self.anchors

    def batching(self, epochs: int, size: int) -> Batching:
        """Return passes over the anchors; a size of 0 means 10 up to 250 anchors, else 250."""
        count = len(self.needed.indices)
        if size == 0:
            size = 10 if count <= 250 else 250
        return Batching(epochs, size, self.network.smallest_batch(self.model.image_size))
