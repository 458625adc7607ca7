"""What every memory of a server does: it learns from a round's announcements what the next round's tasks carry."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class RoundMemory(ABC):
    """Kept in the checkpoint; a function of the announcements of the rounds alone."""

    keeps_updates = False
    """Whether every silo's last update stays with the server, for `model_for`."""

    sparse_updates = False
    """Whether most of an update is as the silo received it, so that it travels as differences from the model."""

    gathers_first = False
    """Whether silos announce something before the first local training, in answer to `first_auxiliary`."""

    def first_auxiliary(self) -> AuxiliaryData:
        """Return what silos are told that shall announce before the first local training."""
        return {}

    @abstractmethod
    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Learn what the silos of a round announced whose updates counted."""

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return what a silo of the next round is told: nothing."""
        return {}

    def model_for(
        self, silo: str, round_number: int, model: ModelBytes, up: Layout, updates: Mapping[str, ChunkSource]
    ) -> tuple[ChunkSource, AuxiliaryData]:
        """Return the model that a silo is sent in a round, and what it is told with it: the global model, and the auxiliary data.

        Parameters
        ----------
        silo : str
            For whom.
        round_number : int
            Round, from 1.
        model : ModelBytes
            The global model.
        up : Layout
            Of the updates.
        updates : mapping of str to ChunkSource
            Every silo's last update, where they are kept.
        """
        return model, self.auxiliary_data(silo)

    @abstractmethod
    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what a checkpoint must keep."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what a checkpoint kept."""
