"""The global model with fewer bits on its way down: rounded at the server before it is offered.

What silos train from is the rounded model, over a network and in a simulation: the task's manifest names its bytes, and what travels only says the
same bytes in a shorter form. The server keeps the exact model, and adds to that what the silos changed (`ModelEncoding.exact_mean`), so that
nothing is lost by rounding from round to round: what a model lost is in the next one again, as with error feedback.
"""

from collections.abc import Mapping
from functools import lru_cache

from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSink, Manifest, chunk_digest
from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, Coding
from anchorage.transport.tensors.encoded import Encoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.shortened import Shortened

MODEL_CODINGS: Mapping[str, Coding] = {"BFloat16": BFloat16Coding(), "Int8": BlockCoding(bits=8)}
"""Codings by the names that `spec.protocol.modelEncoding` has for them."""

_ZEROS = bytes(CHUNK_BYTES)


class ModelEncoding:
    """How models of one layout travel: the network's tensors with two axes or more in a coding, frozen tensors as they are, for they travel once.

    Parameters
    ----------
    coding : Coding
        Without error feedback.
    layout : Layout
        Of the models.
    """

    def __init__(self, coding: Coding, layout: Layout) -> None:
        self._layout, trainable = layout, layout.trainable
        self._encoding = Encoding(coding, trainable, trainable)

    def round_model(self, model: ModelBytes) -> "RoundedModel":
        """Return a model as silos get it; a chunk with a number that is not finite, or too large, stays as it is."""
        fixed = model.manifest.fixed
        plain, sent = list(model.chunks[: len(fixed)]), list(model.chunks[: len(fixed)])
        for index, chunk in enumerate(model.chunks[len(fixed) :]):
            code = self._encoding.encode(index, chunk, _ZEROS)
            plain.append(chunk if code is None else self._encoding.decode(index, code, _ZEROS))
            sent.append(chunk if code is None else code)
        digests = (*fixed, *map(chunk_digest, plain[len(fixed) :]))
        return RoundedModel(ModelBytes(model.layout, plain, digests), sent)

    def exact_mean(self, mean: ModelBytes, exact: ModelBytes, received: ModelBytes) -> ModelBytes:
        """Return ``exact + (mean - received)`` in every tensor that was rounded, and the others of the mean.

        Parameters
        ----------
        mean : ModelBytes
            What updates of the received model were aggregated to, some or all of its trained tensors.
        exact, received : ModelBytes
            The global model at the server, and as `round_model` made it.
        """
        arrays, exact_arrays, start = mean.arrays(), exact.trainable.arrays(), received.trainable.arrays()
        for name in arrays.keys() & self._encoding.names:
            arrays[name] -= start[name]
            arrays[name] += exact_arrays[name]
        return ModelBytes.from_arrays(mean.layout, arrays)

    def fits(self, manifest: Manifest) -> bool:
        """Return whether bytes are a model of this layout, with nothing behind."""
        return (manifest.layout, manifest.nbytes) == (self._layout.digest, self._layout.nbytes)

    def sink(self, model: ChunkSink) -> ChunkSink:
        """Return where a model arrives as it travels; it gets the bytes that silos train from, and checks their digests."""
        return _DecodedModel(model, self._encoding)


class RoundedModel:
    """A rounded model whose chunks are read encoded (`ChunkSource`); its manifest names the bytes that they stand for.

    Parameters
    ----------
    model : ModelBytes
        The bytes that they stand for.
    chunks : list of bytes
        Every chunk as it travels.
    """

    def __init__(self, model: ModelBytes, chunks: list[bytes]) -> None:
        self.model, self.manifest, self._chunks = model, model.manifest, chunks

    def chunk(self, index: int) -> bytes:
        """Return one chunk, encoded."""
        return self._chunks[index]


class _DecodedModel(Shortened):
    """Where a model's chunks arrive as `RoundedModel` has them; a frozen one is as long as it is, and so taken as it is."""

    def __init__(self, model: ChunkSink, encoding: Encoding) -> None:
        super().__init__(model, _Zeros(model.manifest))
        self._encoding = encoding

    def restore(self, index: int, data: bytes, model: bytes) -> bytes:
        """Return the chunk that encoded bytes stand for."""
        place = index - len(self.manifest.fixed)
        if place < 0:
            raise ValueError("a frozen chunk that is too short")
        return self._encoding.decode(place, data, model)


class _Zeros:
    """What a model's numbers are taken to be changes of (`ChunkSource`)."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def chunk(self, index: int) -> bytes:
        """Return zeros, at least as many as the chunk has bytes."""
        return _ZEROS


@lru_cache(maxsize=8)
def model_encoding(name: str, layout: str) -> ModelEncoding:
    """Return how models of a layout (JSON) travel, by the name of the coding: one for all silos of a process.

    Raises
    ------
    KeyError
        There is no such coding.
    """
    return ModelEncoding(MODEL_CODINGS[name], Layout.from_json(layout))
