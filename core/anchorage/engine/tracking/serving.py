"""What MLflow loads a registered model with: safetensors and JSON, no pickle (``loader_module`` of `mlflow.pyfunc`)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelSpec
from anchorage.transport.tensors.safetensors_file import read_safetensors

if TYPE_CHECKING:
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
        self._model = ModelSpec.model_validate(self.description["model"])
        self._network: Network | None = None

    def predict(self, model_input: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return class probabilities.

        Parameters
        ----------
        model_input : ndarray of float32, shape [n, channels, size, size]
            Images, 0 to 255 as they are stored; rounded and clipped to whole numbers.

        Returns
        -------
        ndarray of float32, shape [n, C]
            Rows sum to 1.
        """
        import torch

        from anchorage.learning.data.augmentation import augmentation_of
        from anchorage.learning.views import Views

        images = np.clip(np.rint(model_input), 0, 255).astype(np.uint8)
        network = self._loaded()
        views = Views(images, augmentation_of(self._model.augmentation), torch.device("cpu"))
        found = views.mapped(np.arange(len(images)), lambda batch: network(views.plain(batch)).softmax(1))
        probabilities: NDArray[np.float32] = found.numpy()
        return probabilities

    def _loaded(self) -> "Network":
        if self._network is None:
            from anchorage.learning.hooks import TrainingMethod
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
