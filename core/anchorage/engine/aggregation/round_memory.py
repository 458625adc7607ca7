"""What every memory of a server does: it learns from a round's announcements what the next round's tasks carry."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes

if TYPE_CHECKING:
    from anchorage.engine.store.large_files import LargeFiles
    from anchorage.transport.tensors.large_arrays import LargeArrays


class RoundMemory(ABC):
    """Kept in the checkpoint; a function of the announcements of the rounds alone."""

    keeps_updates = False
    """Whether every silo's last update stays with the server, for `model_for`."""

    sparse_updates = False
    """Whether most of an update is as the silo received it, so that it travels as differences from the model."""

    scores_updates = False
    """Whether the server scores every silo's own model on its validation images, for `scored`."""

    gathers_first = False
    """Whether silos announce something before the first local training, in answer to `first_auxiliary`."""

    takes: frozenset[str] = frozenset()
    """Names of the large auxiliary data that it takes of silos."""

    large: "LargeFiles[Any]"
    """Where it keeps what is too large for a checkpoint, under the name of `slot`; the strategy sets both before a run."""
    slot = ""

    def first_auxiliary(self) -> AuxiliaryData:
        """Return what silos are told that shall announce before the first local training."""
        return {}

    def refusal(self, announced: Mapping[str, TensorEntry]) -> AnchorageError | None:
        """Return why large auxiliary data of `takes` that a silo announces is not taken, for its shapes, dtypes or size; None where it is.

        Nothing of it has arrived yet, and none of it arrives where it is refused.
        """
        return None

    def receive(self, silo: str, arrays: "LargeArrays") -> None:
        """Look at the large auxiliary data of a silo whose announcement counts, before `conclude`, which may still read it; not after.

        Called where `takes` names any of it.
        """
        raise NotImplementedError

    def scored(self, silo: str, metrics: Mapping[str, float]) -> None:
        """Hear what a silo's own model of a round scores on the server's validation images; no metrics where there are none.

        Called where `scores_updates` asks for it, after `conclude`.
        """
        raise NotImplementedError

    @abstractmethod
    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Learn what the silos of a round announced whose updates counted."""

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return what a silo of the next round is told: nothing."""
        return {}

    def behind(self, silo: str = "") -> "LargeArrays | None":
        """Return the large auxiliary data that a silo of the next round is sent; chunks that it has are not sent again."""
        return None

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
