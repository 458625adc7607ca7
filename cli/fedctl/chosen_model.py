"""Which model of a run a command uses: its role, its round, and its score in that round."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import MODEL_UNUSABLE
from anchorage.api.inference import DESCRIPTION, Weights
from anchorage.api.metrics import best_metric
from anchorage.engine.held_out import is_pooled

_TITLES = {
    "best": "the best model",
    "final": "the last model",
    "checkpoint": "the last committed model of a run that is not over",
}


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model of a run, as commands report it."""

    role: str
    """``best``, ``final`` or ``checkpoint``, as in ``model.json``."""
    weights: Weights
    """What ``model.json`` says of it."""

    def values(self) -> dict[str, Any]:
        """Return role, round and score as JSON values; a round that was not scored has the score null."""
        metric = best_metric(self.weights.metrics)
        score = None if metric is None else {"metric": metric[0], "value": metric[1], "images": self._images}
        return {"role": self.role, "round": self.weights.round, "score": score}

    def __str__(self) -> str:
        """Return such as ``the best model: round 12, balanced accuracy 0.812 on the validation images``."""
        metric, number = best_metric(self.weights.metrics), f"round {self.weights.round}"
        if metric is not None:
            name, value = metric
            return f"{_TITLES[self.role]}: {number}, {name.replace('_', ' ')} {value:.3f} on the {self._images}"
        if self.role == "best":
            return f"{_TITLES['final']}: {number}, as no validation images chose a better one"
        return f"{_TITLES[self.role]}: {number}"

    @property
    def _images(self) -> str:
        return "silos' held-out images" if is_pooled(self.weights.metrics) else "validation images"


def chosen_of(described: Mapping[str, Any], role: str) -> ChosenModel:
    """Return the model of a role in the content of a ``model.json``.

    Raises
    ------
    AnchorageError
        MODEL_UNUSABLE: what it says of the model is damaged.
    """
    try:
        return ChosenModel(role, Weights.model_validate(described[role]))
    except ValidationError as error:
        first_error = error.errors()[0]
        where = ".".join(map(str, (role, *first_error["loc"])))
        raise AnchorageError(MODEL_UNUSABLE, f"{DESCRIPTION}: {where}: {first_error['msg']}") from error
