"""What MLflow loads a registered model with: safetensors and JSON, no pickle (``loader_module`` of `mlflow.pyfunc`)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.transport.tensors.safetensors_file import read_safetensors

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

    from anchorage.learning.models import Network

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"


class Classifier:
    """A trained network, loaded when it is first asked.

    Parameters
    ----------
    folder : Path
        With `WEIGHTS` and `DESCRIPTION`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.description: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        self._model = ModelDescription.model_validate(self.description["model"])
        self._network: Network | None = None

    def predict(self, model_input: NDArray[np.float32]) -> "DataFrame":
        """Return class probabilities.

        Parameters
        ----------
        model_input : ndarray of float32, shape [n, channels, size, size]
            Images, 0 to 255 as they are stored; rounded and clipped to whole numbers.

        Returns
        -------
        DataFrame of float32, shape [n, C]
            A column per class, named as it; rows sum to 1.
        """
        import torch
        from pandas import DataFrame

        from anchorage.learning.data.augmentation import augmentation_of
        from anchorage.learning.hooks import expect
        from anchorage.learning.model_hooks import TaskHooks
        from anchorage.learning.views import Views

        images = np.clip(np.rint(model_input), 0, 255).astype(np.uint8)
        network, task = self._loaded(), expect(self._model.task, TaskHooks)
        views = Views(images, augmentation_of(self._model.augmentation), torch.device("cpu"))
        found = views.mapped(np.arange(len(images)), lambda batch: task.probabilities(network(views.plain(batch))))
        return DataFrame(found.numpy(), columns=list(self._model.classes))

    def _loaded(self) -> "Network":
        if self._network is None:
            from anchorage.learning.method import TrainingMethod
            from anchorage.learning.models import build_model
            from anchorage.learning.weights import load_arrays

            method = TrainingMethod.of(ResolvedMethod.model_validate(self.description["method"]))
            network = build_model(self._model, method, self.description["seed"])
            load_arrays(network, read_safetensors(self._folder / WEIGHTS).model.arrays())
            self._network = network.eval()
        return self._network


def _load_pyfunc(path: str) -> Classifier:
    """Return the model of a folder; the name and the signature are MLflow's."""
    return Classifier(Path(path))
