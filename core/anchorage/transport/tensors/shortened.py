"""Where an update arrives in fewer bytes than it has."""

from abc import ABC, abstractmethod

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import CHUNK_MISMATCH
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest


class Shortened(ABC):
    """Where chunks may arrive shorter than they are (`ChunkSink`); one of full length is taken as it is.

    Parameters
    ----------
    update : ChunkSink
        Gets the bytes that they stand for, and checks their digests.
    model : ChunkSource
        As at the sender.
    """

    def __init__(self, update: ChunkSink, model: ChunkSource) -> None:
        self._update, self._model = update, model

    @property
    def manifest(self) -> Manifest:
        """What is being received."""
        return self._update.manifest

    def missing(self) -> tuple[int, ...]:
        """Return the indices of the chunks that have not arrived."""
        return self._update.missing()

    def write(self, index: int, data: bytes) -> None:
        """Restore one chunk and keep it.

        Raises
        ------
        AnchorageError
            The bytes are not the ones that the manifest names.
        """
        start, stop = self.manifest.span(index)
        if len(data) < stop - start:
            try:
                data = self.restore(index, data, self._model.chunk(index)[: stop - start])
            except ValueError as error:
                detail = f"chunk {index} of {self.manifest.digest[:16]}: {error}"
                raise AnchorageError(CHUNK_MISMATCH, detail) from error
        self._update.write(index, data)

    @abstractmethod
    def restore(self, index: int, data: bytes, model: bytes) -> bytes:
        """Return the chunk that shorter bytes stand for.

        Parameters
        ----------
        index : int
            The chunk.
        data : bytes
            What arrived.
        model : bytes
            As many bytes of the model, from the same place.

        Raises
        ------
        ValueError
            They stand for none.
        """
