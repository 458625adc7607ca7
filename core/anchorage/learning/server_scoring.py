"""How the global model is scored on the server's labelled images."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.federation import Embeddings
from anchorage.api.metric_names import LOSS
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import Assessment
from anchorage.api.piece import expect
from anchorage.api.piece_faults import describe_value, wrong_result
from anchorage.learning.data import ImageSet
from anchorage.learning.data.decoding import Fit, RefusedImageError
from anchorage.learning.data.labels import is_known
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.hook_checks import checked_arrays, checked_metrics
from anchorage.learning.layer_outputs import layer_outputs
from anchorage.learning.local_training import Labelled
from anchorage.learning.map_scores import scored_maps, shown_maps
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import Scored, TaskHooks
from anchorage.learning.models import build_model, network_of
from anchorage.learning.network import Network
from anchorage.learning.original_masks import OriginalMasks
from anchorage.learning.probe import linear_probe
from anchorage.learning.server_round import ServerRound
from anchorage.learning.views import Views
from anchorage.learning.weights import load_model
from anchorage.transport.messages import Report
from anchorage.transport.tensors.model import ModelBytes

EMBEDDED_IMAGES = 500
"""Images whose embeddings a report carries."""
EXAMPLES = 6
"""Validation images that a picture of a task's predictions shows."""
KEPT_TESTS = 2
"""Models whose outputs on the test images are kept: the final and the best one are assessed after they were tested."""

_log = logging.getLogger(__name__)

Part = Literal["test", "validation"]


@dataclass(frozen=True, slots=True)
class _Outputs:
    """What a model makes of n images."""

    activated: NDArray[Any]
    """What the task makes of the head's outputs, float64 [n, outputs]; of maps what it scores them by."""
    loss: float
    """The task's mean loss."""
    features: NDArray[np.float32]
    """Embeddings of those that a report carries, [m, d]."""
    own_grids: bool = False
    """As of `Scored`."""


class ServerScoring:
    """Scores models on the server's validation and test images; its methods may be called beside the training, in another thread.

    Parameters
    ----------
    model : ModelDescription
        The network.
    method : TrainingMethod
        The method.
    seed : int
        The run's seed.
    images : mapping of str to ImageSet or None
        The images, by what they are for: ``validation``, ``test``.
    scored : mapping of str to Labelled or None
        Those of them that have a label.
    state : ServerRound
        The server's part of a round; the anchors are there.
    device : torch.device
        Where to score.
    untrained : bool
        Whether the model of round 0 is one that nobody trained.
    pictured : Embeddings or None
        Layer and number of validation images whose outputs a report carries; None: it carries what the classifier sees.
    """

    def __init__(
        self,
        model: ModelDescription,
        method: TrainingMethod,
        seed: int,
        images: Mapping[str, ImageSet | None],
        scored: Mapping[str, Labelled | None],
        state: ServerRound,
        device: torch.device,
        *,
        untrained: bool,
        pictured: Embeddings | None,
    ) -> None:
        self._model, self._method, self._seed, self._device = model, method, seed, device
        self._task = expect(model.task, TaskHooks)
        self._scored, self._round, self._untrained, self._pictured = scored, state, untrained, pictured
        self._groups = {name: _groups(images.get(name)) for name in scored}
        self._originals = {name: _original_masks(images.get(name), model.fitting) for name in scored}
        self._scorer: Network | None = None
        self._tested: dict[tuple[str, int], NDArray[Any]] = {}
        self._scoring = Lock()

    def score(self, model: ModelBytes, part: Part, round_number: int) -> Report:
        """Score a model on the images of a part in eval mode; an empty report where there are none.

        Where nobody trains the classifier (self-supervised methods) a linear probe on the anchors takes its place; without anchors the report
        is empty.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        outputs, images = self._outputs(model, part, round_number), self._scored[part]
        if outputs is None or images is None:
            return Report({})
        if part == "test":
            self._tested = dict(
                [*self._tested.items(), ((model.digest, round_number), outputs.activated)][-KEPT_TESTS:]
            )
        evaluated = self._task.evaluate(images.labels, outputs.activated)
        metrics = {LOSS: outputs.loss, **checked_metrics(self._task, "evaluate", evaluated)}
        tally = checked_arrays(self._task, "tally", self._task.tally(images.labels, outputs.activated))
        shown = self._draw(part, len(images.labels))
        coloured = self._task.true_and_predicted(images.labels[shown], outputs.activated[shown])
        embeddings = np.column_stack([coloured, outputs.features])
        layer = self._pictured.layer if self._pictured and part == "validation" else ""
        return Report(metrics, tally, embeddings.astype(np.float32), layer)

    def assess(self, model: ModelBytes, round_number: int) -> Assessment | None:
        """Score a model in full on the test images, else the validation images; None where `score` has nothing to say.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        part: Part = "validation" if self._scored["test"] is None else "test"
        scored = self._score_part(part, model, round_number)
        if scored is None:
            return None
        validation = None
        if self._task.chooses_thresholds:
            validation = scored if part == "validation" else self._score_part("validation", model, round_number)
        return self._task.assessment(scored, Draws(self._seed).numpy("resampling"), validation)

    def examples(self, model: ModelBytes, round_number: int) -> NDArray[np.uint8] | None:
        """Return a picture of `EXAMPLES` validation images with what is true and predicted, uint8 [h, w, 3]; None: there are none, or none are drawn.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        images = self._scored["validation"]
        if images is None or not self._task.draws_examples:
            return None
        rows = np.unique(np.linspace(0, len(images.labels) - 1, EXAMPLES).astype(np.int64))
        with calculation(), self._scoring:
            network = self._scoring_network(model, images.views)
            maps = shown_maps(network, images.views, self._task, images.indices[rows], images.labels[rows])
        if not maps.finite:
            raise self._not_finite("validation", round_number)
        return self._task.examples(maps.pixels, maps.labels, maps.maps)

    def _score_part(self, part: Part, model: ModelBytes, round_number: int) -> Scored | None:
        """Return what a model makes of a part's images, for an assessment; None where it is not scored on them."""
        images = self._scored[part]
        known = part == "test" and not self._task.gives_maps
        activated, own_grids = self._tested.get((model.digest, round_number)) if known else None, False
        if activated is None and (outputs := self._outputs(model, part, round_number, in_full=True)) is not None:
            activated, own_grids = outputs.activated, outputs.own_grids
        if activated is None or images is None:
            return None
        return Scored(part, images.labels, activated, self._groups[part], own_grids)

    def _draw(self, part: str, count: int) -> NDArray[np.int64]:
        """Return the images of a part whose embeddings a report carries, ascending."""
        most = self._pictured.images if self._pictured and part == "validation" else EMBEDDED_IMAGES
        return np.sort(Draws(self._seed).numpy("embeddings").permutation(count)[:most])

    def _outputs(self, model: ModelBytes, part: Part, round_number: int, *, in_full: bool = False) -> "_Outputs | None":
        """Return what a model makes of a part's images, `in_full` for an assessment; None where there are none, or nothing to tell classes by.

        Raises
        ------
        AnchorageError
            They are not finite.
        """
        images = self._scored[part]
        if images is None or (self._probed and self._round.anchors is None):
            return None
        with calculation(), self._scoring:
            network = self._scoring_network(model, images.views)
            if network.gives_maps:
                return self._forward_maps(network, images, part, round_number, in_full=in_full)
            return self._forward(network, images, part, round_number)

    def _scoring_network(self, model: ModelBytes, views: Views) -> Network:
        """Return a network with a model's weights as it is evaluated; `_scoring` is held."""
        if self._scorer is None:
            self._scorer = to_device(build_model(self._model, self._method, self._seed), self._device)
        load_model(self._scorer, model)
        views.encoded_by(self._scorer)
        for piece in self._method.pieces:
            piece.before_scoring(self._round, self._scorer)
        return self._scorer

    def _forward_maps(
        self, network: Network, images: Labelled, part: str, round_number: int, *, in_full: bool
    ) -> "_Outputs":
        """Do what `_forward` does where the network gives maps, of which only what the task scores by is kept."""
        views, task = images.views, self._task.partly_annotated(images.unannotated)
        originals = self._originals[part] if in_full else None
        score = partial(scored_maps, network, views, task, images.indices, images.labels, in_full=in_full)
        try:
            scored, loss, finite = score(originals=originals)
        except RefusedImageError as refused:
            _log.warning(
                "masks of %s images cannot be read again (%s); they are scored on the network's grid",
                part,
                refused.detail,
            )
            originals, (scored, loss, finite) = None, score()
        if not finite:
            raise self._not_finite(part, round_number)
        drawn = images.indices[self._draw(part, len(images.labels))]
        pictured = self._pictured if part == "validation" else None
        outputs = network.embed if pictured is None else layer_outputs(network, pictured.layer)
        rows = views.map_batches(drawn, lambda i: outputs(views.plain(i)))
        return _Outputs(scored, loss, rows.float().cpu().numpy(), originals is not None)

    def _not_finite(self, part: str, round_number: int) -> AnchorageError:
        message = (
            f"the model of round {round_number} gives NaN on the {part} images: lower learningRate or set clipNorm"
        )
        return AnchorageError(LOSS_NOT_FINITE, message)

    def _forward(self, network: Network, images: Labelled, part: str, round_number: int) -> "_Outputs | None":
        features = images.views.map_batches(images.indices, lambda i: network.represent(images.views.plain(i)))
        classifier = self._probe(network, round_number) if self._probed else network.classifier
        if self._probed and not all(bool(p.isfinite().all()) for p in classifier.parameters()):
            return None  # the probe's step is too large for these features, which is no fault of the model
        with torch.no_grad():
            task = self._task
            logits = classifier(features).double()
            activated = task.activated(logits).cpu().numpy()
            loss = float(task.loss(logits, images.views.to_device(images.labels)))
        due = (len(images.indices), self._model.num_outputs)
        if activated.shape != due:
            raise wrong_result(task, "activated", describe_value(activated), f"numbers of shape {list(due)}")
        if not np.isfinite(activated).all():
            if bool(logits.isfinite().all()):
                raise wrong_result(task, "activated", "NaN for finite outputs of the head", "finite numbers")
            if self._is_untrained(round_number) and all(bool(p.isfinite().all()) for p in network.parameters()):
                detail = "outputs that are not finite, of a network with finite weights that nobody trained"
                raise wrong_result(network_of(self._model), "encoder", detail, "an encoder with finite outputs")
            raise self._not_finite(part, round_number)
        drawn = self._draw(part, len(images.labels))
        if self._pictured is None or part != "validation":
            return _Outputs(activated, loss, features.cpu().numpy()[drawn])
        outputs = layer_outputs(network, self._pictured.layer)
        rows = images.views.map_batches(images.indices[drawn], lambda i: outputs(images.views.plain(i)))
        return _Outputs(activated, loss, rows.float().cpu().numpy())

    def _is_untrained(self, round_number: int) -> bool:
        return round_number == 0 and self._untrained

    @property
    def _probed(self) -> bool:
        return not self._method.trains_classifier

    def _probe(self, network: Network, round_number: int) -> nn.Linear:
        data, views = self._round.needed, self._round.needed.views
        features = views.map_batches(data.indices, lambda i: network.represent(views.plain(i)))
        labels = views.to_device(data.labels)
        return linear_probe(features, labels, self._task, Draws(self._seed, round_number))


def _groups(images: ImageSet | None) -> NDArray[np.int64]:
    """Return the number of each labelled image's patient or lesion, [n]."""
    if images is None:
        return np.zeros(0, np.int64)
    names = np.array(images.groups, dtype=object)[is_known(images.labels)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _original_masks(images: ImageSet | None, fit: Fit) -> OriginalMasks | None:
    """Return the masks of the labelled images; None where labels are no masks."""
    if images is None or images.masks is None:
        return None
    return OriginalMasks(images.masks.select(np.flatnonzero(is_known(images.labels)).tolist()), fit)
