"""The messages of secure aggregation: JSON of these documents, which both ends read as foreign bytes."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, ValidationError

from anchorage.api.base import Document, Name
from anchorage.transport.secure_aggregation.member import Dealing, Keys, ProtocolError
from anchorage.transport.secure_aggregation.unmasking import Opening

CONTENT = "secure_aggregation"
"""Name of the array (uint8) in a task's auxiliary data that holds the step's message."""

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=512)]
Commitment = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$", max_length=128)]
BySilo = Annotated[dict[Name, Hex], Field(max_length=1000)]
Commitments = Annotated[dict[Name, Commitment], Field(max_length=1000)]
D = TypeVar("D", bound=Document)


class KeysMessage(Document):
    """Answer of ShowKeys."""

    mask: Key
    seal: Key
    most: Annotated[int, Field(ge=0, le=10**9)]
    certificate: Annotated[str, StringConstraints(pattern=r"^[\t\n\r -~]*$", max_length=8192)]
    signature: Hex

    @classmethod
    def of(cls, keys: Keys) -> "KeysMessage":
        """Write keys."""
        certificate, signature = keys.certificate.decode("ascii"), keys.signature.hex()
        return cls(
            mask=keys.mask.hex(),
            seal=keys.seal.hex(),
            most=keys.most,
            certificate=certificate,
            signature=signature,
        )

    def keys(self) -> Keys:
        """Return the keys, whose signature is still to be checked."""
        mask, seal, signature = (bytes.fromhex(text) for text in (self.mask, self.seal, self.signature))
        return Keys(mask, seal, self.most, self.certificate.encode(), signature)


class Roster(Document):
    """Task ShareSecrets: everybody's keys, in the order of the sums."""

    keys: Annotated[dict[Name, KeysMessage], Field(max_length=1000)]


class Shares(Document):
    """Answer of ShareSecrets: sealed shares for every other silo, digests of all shares and of the seed, and the signature of the roster."""

    sealed: BySilo
    commitments: Commitments
    seed: Key
    signature: Hex

    @classmethod
    def of(cls, dealing: Dealing) -> "Shares":
        """Write what a silo deals."""
        sealed, commitments = _hex(dealing.sealed), _hex(dealing.commitments)
        return cls(sealed=sealed, commitments=commitments, seed=dealing.seed.hex(), signature=dealing.signature.hex())

    def dealing(self) -> Dealing:
        """Return what a silo deals, which is still to be checked."""
        seed, signature = bytes.fromhex(self.seed), bytes.fromhex(self.signature)
        return Dealing(from_hex(self.sealed), from_hex(self.commitments), seed, signature)


class Agreement(Document):
    """With a train task: who signed the roster."""

    signatures: BySilo


class Scale(Document):
    """With a train task of a simulation, which masks nothing: what updates are divided by."""

    scale: Annotated[int, Field(ge=1)]


class Survivors(Document):
    """Task ConfirmSurvivors: whose updates arrived."""

    survivors: Annotated[tuple[Name, ...], Field(max_length=1000)]


class Confirmed(Document):
    """Answer of ConfirmSurvivors: a signature of the survivors, of which each silo gives one in a round."""

    signature: Hex


class Lost(Survivors):
    """Task RevealShares: whose updates arrived, who signed that, and the shares for the receiver, sealed, with the digests of what they should be."""

    sealed: BySilo
    commitments: Commitments
    signatures: BySilo


class Revealed(Document):
    """Answer of RevealShares: the share of one secret of every silo, and those whose shares cannot be opened."""

    shares: BySilo
    unreadable: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()

    def opening(self) -> Opening:
        """Return what a silo reveals, which is still to be checked."""
        return Opening(from_hex(self.shares), self.unreadable)


def from_hex(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return the bytes that stand beside the names of silos."""
    return {name: bytes.fromhex(text) for name, text in texts.items()}


def _hex(values: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.hex() for name, value in values.items()}


def write(message: Document) -> bytes:
    """Write a message."""
    return message.model_dump_json(by_alias=True).encode()


def read(kind: type[D], content: bytes) -> D:
    """Read a message.

    Raises
    ------
    ProtocolError
        The bytes are none.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise ProtocolError(f"a message is no {kind.__name__} ({error.error_count()} mistakes)") from error


def content_of(auxiliary_data: Mapping[str, NDArray[np.uint8]]) -> bytes:
    """Return the message that a task carries; empty where it carries none."""
    return np.asarray(auxiliary_data.get(CONTENT, np.empty(0)), np.uint8).tobytes()


def as_auxiliary_data(message: Document) -> dict[str, NDArray[np.uint8]]:
    """Return the auxiliary data by which a task carries a message."""
    return {CONTENT: np.frombuffer(write(message), np.uint8)}
