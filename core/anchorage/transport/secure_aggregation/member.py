"""One silo in one round of secure aggregation, and what the server makes of the answers.

Five steps: a silo shows signed keys of the round; it seals shares of its two secrets for every other and signs the list of all keys; it
masks its numbers, once; it signs whose numbers arrived, once; and when enough silos have signed the same, it reveals, once, the share of
one of the two secrets of every silo. Without the fourth step a server could tell each silo of other losses and gather both secrets of one.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from anchorage.transport.pki.credentials import issuer_of
from anchorage.transport.pki.identity import silo_uri, uris_of
from anchorage.transport.pki.keys import PrivateKey
from anchorage.transport.secure_aggregation.masks import Mask, Words, add_masks
from anchorage.transport.secure_aggregation.shamir import SHARE_BYTES, combine, split

FEWEST = 3
"""Silos that a round needs: of two, each learns the other's numbers from the sum."""
_CONTEXT = "anchorage secure aggregation 1"
_NONCE = bytes(12)  # every sealing key seals once


class ProtocolError(ValueError):
    """The server, or another silo through it, asks for what would undo the protection."""


def threshold(silos: int) -> int:
    """Return how many of a round's silos recover the sum; up to a third may be lost, and no two such groups are disjoint."""
    return silos - silos // 3


@dataclass(frozen=True, slots=True)
class Keys:
    """What a silo shows in a round."""

    mask: bytes
    """X25519, of the masks; its private half is shared."""
    seal: bytes
    """X25519, of the sealed shares; its private half never leaves."""
    most: int
    """The largest weight that its numbers may have: their sum is scaled by the sum of these."""
    certificate: bytes
    """PEM, of the federation's authority."""
    signature: bytes = b""
    """With the certificate's key, over the other fields, the round and the silo."""

    def signed(self, federation: str, task: str, silo: str) -> bytes:
        """Return the bytes that are signed."""
        content = [_CONTEXT, "keys", federation, task, silo, self.mask.hex(), self.seal.hex(), self.most]
        return json.dumps(content).encode()

    def check(self, federation: str, task: str, silo: str, authorities: Sequence[x509.Certificate], now: float) -> None:
        """Check that they are the silo's, for this round.

        Raises
        ------
        ProtocolError
            They are not.
        """
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            if issuer_of(certificate, authorities) is None:
                raise InvalidSignature
            uris, valid = uris_of(certificate), (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
            _verify(self.certificate, self.signature, self.signed(federation, task, silo))
        except (ValueError, TypeError, InvalidSignature) as error:
            raise ProtocolError(f"the keys of {silo} are not signed by it") from error
        if uris != [silo_uri(federation, silo)] or not valid[0].timestamp() <= now <= valid[1].timestamp():
            raise ProtocolError(f"the certificate of {silo} is another's, or not valid now")
        if len(self.mask) != 32 or len(self.seal) != 32 or self.most < 0:
            raise ProtocolError(f"the keys of {silo} have another form")


def roster_digest(task: str, roster: Mapping[str, Keys]) -> bytes:
    """Return the digest of who takes part with which keys, 32 bytes."""
    content = [[silo, keys.mask.hex(), keys.seal.hex(), keys.most] for silo, keys in roster.items()]
    return hashlib.sha256(json.dumps([_CONTEXT, "roster", task, content]).encode()).digest()


class Member:
    """A silo's secrets of one round; they are forgotten with it."""

    def __init__(
        self,
        federation: str,
        silo: str,
        task: str,
        most: int,
        key: PrivateKey,
        certificate: bytes,
        authorities: Sequence[x509.Certificate],
    ) -> None:
        self.federation, self.silo, self.task = federation, silo, task
        self._key, self._authorities = key, authorities
        self._mask, self._seal, self._seed = (
            X25519PrivateKey.generate(),
            X25519PrivateKey.generate(),
            secrets.token_bytes(32),
        )
        mask, seal = (half.public_key().public_bytes_raw() for half in (self._mask, self._seal))
        unsigned = Keys(mask, seal, most, certificate)
        signature = self._sign(unsigned.signed(federation, task, silo))
        self.keys = Keys(mask, seal, most, certificate, signature)
        self._roster: dict[str, Keys] = {}
        self._digest = b""
        self._own_shares: dict[str, tuple[bytes, bytes]] = {}
        self._participants: tuple[str, ...] = ()
        self._confirmed: frozenset[str] = frozenset()
        self._revealed = False

    def share(self, roster: Mapping[str, Keys], now: float) -> tuple[dict[str, bytes], bytes]:
        """Return sealed shares for every other silo, and the signature of the roster.

        Raises
        ------
        ProtocolError
            There are too few silos, keys of one are not its own, or this was asked before.
        """
        if self._roster:
            raise ProtocolError("shares were asked for twice")
        if len(roster) < FEWEST or roster.get(self.silo) != self.keys:
            raise ProtocolError(f"the list of {len(roster)} silos is too short, or lacks this silo's keys")
        for silo, keys in roster.items():
            keys.check(self.federation, self.task, silo, self._authorities, now)
        self._roster, self._digest = dict(roster), roster_digest(self.task, roster)
        parts = (
            split(secret, len(roster), threshold(len(roster)))
            for secret in (self._mask.private_bytes_raw(), self._seed)
        )
        pairs = dict(zip(roster, zip(*parts, strict=True), strict=True))
        self._own_shares[self.silo] = pairs.pop(self.silo)
        sealed = {
            silo: AESGCM(self._sealing(self.silo, silo)).encrypt(_NONCE, b"".join(pair), None)
            for silo, pair in pairs.items()
        }
        return sealed, self._sign(_agreed(self._digest))

    def scale(self, weight: float) -> float:
        """Return by what numbers of this weight are divided, so that no sum leaves the range.

        Raises
        ------
        ProtocolError
            The weight is larger than the silo said it could be, or shares come first.
        """
        if not self._roster or not 0 <= weight <= self.keys.most:
            raise ProtocolError(f"the weight {weight:g} is more than {self.keys.most}, or shares come first")
        return max(1, sum(keys.most for keys in self._roster.values()))

    def mask(self, words: Words, signatures: Mapping[str, bytes]) -> None:
        """Mask numbers in place, once, for the silos that signed the same roster.

        Raises
        ------
        ProtocolError
            Too few signed it, a signature is wrong, or numbers were masked before.
        """
        if self._participants or not self._roster:
            raise ProtocolError("masks are for one update, after the shares")
        order = tuple(silo for silo in self._roster if silo in signatures)
        if (
            len(order) < max(FEWEST, threshold(len(self._roster)))
            or len(order) < len(signatures)
            or self.silo not in order
        ):
            raise ProtocolError(f"{len(order)} of {len(self._roster)} silos agree, which is too few, or not this one")
        for silo in order:
            try:
                _verify(self._roster[silo].certificate, signatures[silo], _agreed(self._digest))
            except (ValueError, TypeError, InvalidSignature) as error:
                raise ProtocolError(f"{silo} has not signed this list of silos") from error
        self._participants = order
        masks = [Mask(self._seed, 1)]
        for silo in order:
            if silo != self.silo:
                key = mask_key(self._mask, self._roster[silo].mask, self._digest)
                masks.append(Mask(key, 1 if self.silo < silo else -1))
        add_masks(words, masks)

    def confirm(self, survivors: Sequence[str]) -> bytes:
        """Return the signature of whose numbers arrived, in a round for one such set alone.

        Raises
        ------
        ProtocolError
            Another set was signed before, it is too small, or numbers were not masked.
        """
        alive = frozenset(survivors)
        if not self._participants or self._confirmed not in (frozenset(), alive):
            raise ProtocolError("one set of silos is confirmed in a round, after the masks")
        if not alive <= set(self._participants) or len(alive) < threshold(len(self._roster)):
            raise ProtocolError(f"a sum of {len(alive)} of {len(self._roster)} silos is not revealed")
        self._confirmed = alive
        return self._sign(self._sum_of(alive))

    def reveal(
        self, survivors: Sequence[str], sealed: Mapping[str, bytes], signatures: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Return, once, the share of every participant's seed where its numbers are in the sum, and of its mask key where they are not.

        Raises
        ------
        ProtocolError
            This was answered before, too few silos or other ones have signed these survivors, or a share was changed on its way.
        """
        if self._revealed:
            raise ProtocolError("shares are revealed once")
        self.confirm(survivors)
        alive = self._confirmed
        if not alive >= signatures.keys() or len(signatures) < threshold(len(self._roster)):
            raise ProtocolError(
                f"{len(signatures)} of {len(self._roster)} silos confirm whose numbers arrived, which is too few, or others"
            )
        for silo, signature in signatures.items():
            try:
                _verify(self._roster[silo].certificate, signature, self._sum_of(alive))
            except (ValueError, TypeError, InvalidSignature) as error:
                raise ProtocolError(f"{silo} has not confirmed whose numbers arrived") from error
        self._revealed, found = True, dict(self._own_shares)
        for silo in self._participants:
            if silo != self.silo:
                try:
                    both = AESGCM(self._sealing(silo, self.silo)).decrypt(_NONCE, sealed[silo], None)
                except (KeyError, InvalidTag) as error:
                    raise ProtocolError(f"the share of {silo} is missing or was changed") from error
                found[silo] = both[:SHARE_BYTES], both[SHARE_BYTES:]
        return {silo: found[silo][silo in alive] for silo in self._participants}

    def _sealing(self, sender: str, receiver: str) -> bytes:
        other = self._roster[receiver if sender == self.silo else sender].seal
        return _derived(self._seal, other, b"seal" + self._digest + json.dumps([sender, receiver]).encode())

    def _sum_of(self, alive: frozenset[str]) -> bytes:
        """Return the bytes that are signed of a sum: who masked numbers for whom, and whose arrived."""
        content = [_CONTEXT, "sum", self._digest.hex(), list(self._participants), sorted(alive)]
        return json.dumps(content).encode()

    def _sign(self, content: bytes) -> bytes:
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))


def mask_key(own: X25519PrivateKey, other: bytes, digest: bytes) -> bytes:
    """Return the key of the mask that two silos share."""
    return _derived(own, other, b"mask" + digest)


def unmasking(
    roster: Mapping[str, Keys], digest: bytes, survivors: Sequence[str], revealed: Mapping[str, Mapping[str, bytes]]
) -> list[Mask]:
    """Return what takes the masks off the sum of the survivors' numbers; `revealed` is what at least a threshold of silos revealed.

    Raises
    ------
    ProtocolError
        Too few silos revealed shares, or their shares do not belong together.
    """
    order, need = list(roster), threshold(len(roster))
    if len(revealed) < need:
        raise ProtocolError(f"{len(revealed)} silos revealed shares, {need} are needed")
    tellers, masks = dict(list(revealed.items())[:need]), list[Mask]()
    for silo in next(iter(tellers.values())):
        try:
            secret = combine({order.index(teller): shares[silo] for teller, shares in tellers.items()})
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"the shares of {silo} do not belong together") from error
        if silo in survivors:
            masks.append(Mask(secret, -1))
            continue
        lost = X25519PrivateKey.from_private_bytes(secret)
        if lost.public_key().public_bytes_raw() != roster[silo].mask:
            raise ProtocolError(f"the shares of {silo} do not belong together")
        for other in survivors:
            masks.append(Mask(mask_key(lost, roster[other].mask, digest), 1 if silo < other else -1))
    return masks


def _derived(own: X25519PrivateKey, other: bytes, info: bytes) -> bytes:
    shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(hashes.SHA256(), 32, None, _CONTEXT.encode() + info).derive(shared)


def _agreed(digest: bytes) -> bytes:
    return json.dumps([_CONTEXT, "agreed", digest.hex()]).encode()


def _verify(certificate: bytes, signature: bytes, content: bytes) -> None:
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the certificate's key is no EC key")
    key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
