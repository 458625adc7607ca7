"""The server's part of plain averaging: the model of round 0 comes from a file, and nothing is trained or scored here. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path

from anchorage.transport.messages import AuxiliaryData, Report
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors
from anchorage_server.memory import require_memory


class FileModel:
    """`ServerLearner` without learning.

    Parameters
    ----------
    path : Path
        Safetensors file with the weights to start from; its tensors are the model's.

    Raises
    ------
    AnchorageError
        The file cannot be read or is no safetensors file; the model does not fit into memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._layout, _ = read_description(path)
        require_memory(self._layout.nbytes)

    @property
    def down(self) -> Layout:
        """Layout of the global model."""
        return self._layout

    @property
    def up(self) -> Layout:
        """Layout of an update, the same."""
        return self._layout

    def initialise(self) -> ModelBytes:
        """Return the file's weights.

        Raises
        ------
        AnchorageError
            The file cannot be read, or is damaged.
        """
        return read_safetensors(self._path, self._layout).model

    def adopt(self, model: ModelBytes) -> ModelBytes:
        """Return the model of the stage before, which has the same tensors."""
        return model

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        """Return nothing."""
        return {}

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Return the model as it is."""
        return model, {}

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Return an empty report."""
        return Report({})

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Return an empty report."""
        return Report({})

    def assess(self, model: ModelBytes, round_number: int) -> None:
        """Return nothing."""
