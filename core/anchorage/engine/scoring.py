"""Scores of single silos' models on the server's validation images."""

import math
from collections.abc import Callable, Mapping

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.engine.interfaces import ServerLearner
from anchorage.transport.tensors.model import ModelBytes


def scores(learner: ServerLearner, model: ModelBytes, round_number: int) -> Mapping[str, float]:
    """Return a model's metrics; none where its outputs are not finite, or there are no images."""
    try:
        return learner.evaluate(model, round_number).metrics
    except AnchorageError as error:
        if error.code != LOSS_NOT_FINITE.code:
            raise
        return {}


def losses(learner: ServerLearner, round_number: int) -> Callable[[ModelBytes], float]:
    """Return what tells a model's loss in a round; infinite where there are no `scores`."""
    return lambda model: scores(learner, model, round_number).get("loss", math.inf)
