"""A trained model on this machine, for use: of a run, or of a folder that `fedctl model pull` wrote."""

import json
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.inference import DESCRIPTION, Inference, parse_inference, read_inference
from anchorage.api.regular_files import read_regular
from anchorage.transport.tensors.model import ModelBytes
from fedctl.chosen_model import ChosenModel
from fedctl.local_source import LocalSource
from fedctl.model_pull import read_model
from fedctl.workdir import DEFAULT_PARENT, Workdir

try:
    from anchorage.learning.inference import ImageModel, read_weights
except ImportError as missing:
    raise AnchorageError(
        commands.PACKAGE_MISSING, f"{missing.name} is not installed; install it with: pip install 'anchorage[learning]'"
    ) from missing


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model with its description."""

    described: Inference
    """What ``model.json`` says."""
    text: str
    """Its content."""
    weights: ModelBytes
    """The network's tensors."""
    chosen: ChosenModel
    """Which model of the run it is."""

    def image_model(self) -> ImageModel:
        """Return it as a module.

        Raises
        ------
        AnchorageError
            A package is missing, or the tensors are not the network's.
        """
        return ImageModel(self.described, self.weights.arrays())


def open_model(where: str, *, best: bool) -> TrainedModel:
    """Read a model.

    Parameters
    ----------
    where : str
        A folder with ``model.json``, the working folder of a run, or the name of one below ``.anchorage``.
    best : bool
        The best model, where there is one, else the last.

    Raises
    ------
    AnchorageError
        There is no such model, or it cannot be used.
    """
    folder = Path(where)
    if (folder / DESCRIPTION).exists():
        described = read_inference(folder / DESCRIPTION)
        role, weights = described.choose(best=best)
        text = read_regular(folder / DESCRIPTION).decode()
        return TrainedModel(described, text, read_weights(folder, weights), ChosenModel(role, weights))
    for run in (Workdir(folder.resolve()), Workdir((DEFAULT_PARENT / where).resolve())):
        if run.federation.exists():
            pulled = read_model(LocalSource(run), best=best)
            text = json.dumps(pulled.description)
            described = parse_inference(text.encode(), str(run.root))
            return TrainedModel(described, text, pulled.model, pulled.chosen)
    message = f"{where} has no {DESCRIPTION} and is no run; for a run in a cluster, `fedctl model pull` it first"
    raise AnchorageError(commands.MODEL_UNUSABLE, message)
