"""Requests for certificates that wait for the operator's answer, since the authority's key is not here."""

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.base import Document
from anchorage.api.errors import CATALOGUE, AnchorageError, identity
from anchorage.api.status import Code, Line, timestamp
from anchorage.transport.link import Clock

CAPACITY = 256
"""Requests that wait at the same time."""
KEPT_SECONDS = 600.0
"""How long an answer is kept for the silo that asks again."""
FORGOTTEN_SECONDS = 120.0
"""How long a request waits whose silo does not ask again."""
MOST_CSR_BYTES = 8192
MOST_TOKEN_LENGTH = 256
MOST_ANSWERS = 1024

Kind = Literal["Enrol", "Renew"]


class CertificateRequest(Document):
    """One request, as the operator sees it."""

    id: str = Field(description="The same for the same request.")
    kind: Kind = Field(description="Enrol: a first certificate, for a token. Renew: a further one.")
    silo: str = Field(description="Who asks: for Enrol what it says, for Renew what its certificate says.")
    token: str = Field("", repr=False, description="The one-time token; empty for Renew.")
    csr: str = Field(description="The signing request, PEM.")
    time: str = Field(description="When it came first.")


class RequestAnswer(Document):
    """What the operator answers: a certificate, or a refusal."""

    id: Annotated[str, StringConstraints(strict=True, max_length=64)] = Field(description="Which request.")
    certificate: Annotated[str, StringConstraints(strict=True, max_length=65_536)] = Field("", description="PEM.")
    code: Code = Field("", description="Of the catalogue, for a refusal.")
    message: Line = Field("", description="One line, for a refusal.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.certificate) == bool(self.code):
            raise ValueError("found neither or both of certificate and code, needed is one")
        if self.code and self.code not in CATALOGUE:
            raise ValueError(f"found the code {self.code}, which is not in the catalogue")
        return self


class RequestAnswers(Document):
    """Several answers."""

    answers: Annotated[tuple[RequestAnswer, ...], Field(max_length=MOST_ANSWERS)] = Field(description="Any number.")


@dataclass(slots=True)
class _Entry:
    request: CertificateRequest
    asked: float
    answer: RequestAnswer | None = None
    answered: float = field(default=0.0)


class RequestQueue:
    """Where silos ask and the operator answers. Bounded; nothing of it outlives the process: silos ask again.

    Parameters
    ----------
    clock : Clock
        Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def ask(self, kind: Kind, silo: str, csr_pem: bytes, token: str = "") -> bytes:
        """Add a request, or look up its answer.

        Parameters
        ----------
        kind : str
            Enrol or Renew.
        silo : str
            Who asks.
        csr_pem : bytes
            The signing request, checked already.
        token : str
            The one-time token.

        Returns
        -------
        bytes
            The certificate, PEM.

        Raises
        ------
        AnchorageError
            EnrolmentPending where there is no answer yet, TooManyRequests where there is no room, and what the operator answered.
        """
        if len(csr_pem) > MOST_CSR_BYTES or len(token) > MOST_TOKEN_LENGTH:
            raise AnchorageError(identity.REQUEST_REFUSED, "the signing request or the token is too long")
        now = self._clock.now()
        name = hashlib.sha256("\0".join((kind, silo, csr_pem.decode("ascii"), token)).encode()).hexdigest()
        with self._lock:
            self._forget(now)
            entry = self._entries.get(name)
            if entry is None:
                if sum(e.answer is None for e in self._entries.values()) >= CAPACITY:
                    raise AnchorageError(
                        identity.TOO_MANY_REQUESTS, f"{CAPACITY} requests wait already; ask again in a minute"
                    )
                request = CertificateRequest(
                    id=name, kind=kind, silo=silo, token=token, csr=csr_pem.decode("ascii"), time=timestamp(now)
                )
                entry = self._entries[name] = _Entry(request, now)
            entry.asked = now
            answer = entry.answer
        if answer is None:
            waits = f"the request of silo {silo} waits for the coordinating site's answer"
            raise AnchorageError(identity.ENROLMENT_PENDING, waits)
        if answer.code:
            raise AnchorageError(CATALOGUE[answer.code], answer.message)
        return answer.certificate.encode()

    def pending(self) -> list[CertificateRequest]:
        """Return what waits for an answer, oldest first."""
        with self._lock:
            self._forget(self._clock.now())
            return [entry.request for entry in self._entries.values() if entry.answer is None]

    def answer(self, answers: Sequence[RequestAnswer]) -> list[str]:
        """Keep answers for the silos that ask again; return the ids that are not known (any more)."""
        unknown = []
        with self._lock:
            now = self._clock.now()
            self._forget(now)
            for answer in answers:
                entry = self._entries.get(answer.id)
                if entry is None:
                    unknown.append(answer.id)
                elif entry.answer is None:
                    entry.answer, entry.answered = answer, now
        return unknown

    def _forget(self, now: float) -> None:
        old = [
            name
            for name, entry in self._entries.items()
            if (now - entry.asked > FORGOTTEN_SECONDS if entry.answer is None else now - entry.answered > KEPT_SECONDS)
        ]
        for name in old:
            del self._entries[name]
