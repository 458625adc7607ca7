"""One silo in one round of secure aggregation; what the server makes of the answers is in `unmasking`.

Five steps: a silo shows signed keys of the round; it seals shares of its two secrets for every other, commits to them, and signs the list of
all keys; it masks its numbers, once; it signs whose numbers arrived, once; and when enough silos have signed the same, it reveals, once, the
share of one of the two secrets of every silo. Without the fourth step a server could tell each silo of other losses and gather both secrets
of one.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
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
from anchorage.transport.secure_aggregation.shamir import SHARE_BYTES, split

FEWEST = 3
"""Silos that a round needs, and a sum unless the run says 2: of two, each learns the other's numbers from the sum."""
_CONTEXT = "anchorage secure aggregation 2"
_NONCE = bytes(12)  # every sealing key seals once
_ANY_KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))  # keeps nothing secret


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

    def signed_bytes(self, federation: str, task: str, silo: str) -> bytes:
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
            _verify(self.certificate, self.signature, self.signed_bytes(federation, task, silo))
        except (ValueError, TypeError, InvalidSignature) as error:
            raise ProtocolError(f"the keys of {silo} are not signed by it") from error
        if uris != [silo_uri(federation, silo)] or not valid[0].timestamp() <= now <= valid[1].timestamp():
            raise ProtocolError(f"the certificate of {silo} is another's, or not valid now")
        if self.most < 0 or not (_is_public_key(self.mask) and _is_public_key(self.seal)):
            raise ProtocolError(f"the keys of {silo} have another form")


def _is_public_key(key: bytes) -> bool:
    """Return whether an exchange with it gives a secret; with points of low order X25519 gives none."""
    try:
        _ANY_KEY.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Dealing:
    """What a silo deals in a round."""

    sealed: Mapping[str, bytes]
    """For every other silo the shares of both secrets, which it alone can open."""
    commitments: Mapping[str, bytes]
    """For every silo, the own one too, the digests of its two shares: one that is revealed and has another was not dealt."""
    seed: bytes
    """Digest of the secret seed: shares that fit their digests and give another one were never of it."""
    signature: bytes
    """Of the list of silos."""


def roster_digest(task: str, roster: Mapping[str, Keys]) -> bytes:
    """Return the digest of who takes part with which keys, 32 bytes."""
    content = [[silo, keys.mask.hex(), keys.seal.hex(), keys.most] for silo, keys in roster.items()]
    return hashlib.sha256(json.dumps([_CONTEXT, "roster", task, content]).encode()).digest()


class Member:
    """A silo's secrets of one round; they are forgotten with it. It reveals no sum of less than `fewest` silos."""

    def __init__(
        self,
        federation: str,
        silo: str,
        task: str,
        most: int,
        key: PrivateKey,
        certificate: bytes,
        authorities: Sequence[x509.Certificate],
        fewest: int = FEWEST,
    ) -> None:
        self.federation, self.silo, self.task, self._fewest = federation, silo, task, fewest
        self._key, self._authorities = key, authorities
        self._mask, self._seal, self._seed = (
            X25519PrivateKey.generate(),
            X25519PrivateKey.generate(),
            secrets.token_bytes(32),
        )
        mask, seal = (half.public_key().public_bytes_raw() for half in (self._mask, self._seal))
        unsigned = Keys(mask, seal, most, certificate)
        signature = self._sign(unsigned.signed_bytes(federation, task, silo))
        self.keys = Keys(mask, seal, most, certificate, signature)
        self._roster: dict[str, Keys] = {}
        self._digest = b""
        self._own_shares: dict[str, tuple[bytes, bytes]] = {}
        self._participants: tuple[str, ...] = ()
        self._confirmed: frozenset[str] = frozenset()
        self._revealed = False

    def share(self, roster: Mapping[str, Keys], now: float) -> Dealing:
        """Return sealed shares for every other silo, what commits the silo to them, and the signature of the roster.

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
        commitments = {silo: commitment(self._digest, self.silo, silo, pair) for silo, pair in pairs.items()}
        self._own_shares[self.silo] = pairs.pop(self.silo)
        sealed = {
            silo: AESGCM(self._sealing(self.silo, silo)).encrypt(_NONCE, b"".join(pair), None)
            for silo, pair in pairs.items()
        }
        seed = seed_digest(self._digest, self.silo, self._seed)
        return Dealing(sealed, commitments, seed, self._sign(_agreement_text(self._digest)))

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
            len(order) < max(FEWEST, self._fewest, threshold(len(self._roster)))
            or len(order) < len(signatures)
            or self.silo not in order
        ):
            raise ProtocolError(f"{len(order)} of {len(self._roster)} silos agree, which is too few, or not this one")
        for silo in order:
            check_agreed(self._roster, self._digest, silo, signatures[silo])
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
        if not alive <= set(self._participants) or len(alive) < max(self._fewest, threshold(len(self._roster))):
            raise ProtocolError(f"a sum of {len(alive)} of {len(self._roster)} silos is not revealed")
        self._confirmed = alive
        return self._sign(sum_of(self._digest, self._participants, alive))

    def reveal(
        self,
        survivors: Sequence[str],
        sealed: Mapping[str, bytes],
        commitments: Mapping[str, bytes],
        signatures: Mapping[str, bytes],
    ) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return, once, the share of every participant's seed where its numbers are in the sum, and of its mask key where they are not.

        Beside them: the participants whose shares this silo cannot open, or that are not what they committed to.

        Raises
        ------
        ProtocolError
            This was answered before, or too few silos or other ones have signed these survivors.
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
            check_confirmed(self._roster, self._digest, self._participants, alive, silo, signature)
        self._revealed, shares, unreadable = True, dict(self._own_shares), list[str]()
        for silo in self._participants:
            if silo != self.silo:
                try:
                    both = AESGCM(self._sealing(silo, self.silo)).decrypt(_NONCE, sealed[silo], None)
                    pair = both[:SHARE_BYTES], both[SHARE_BYTES:]
                    if commitments[silo] != commitment(self._digest, silo, self.silo, pair):
                        raise InvalidTag
                except (KeyError, InvalidTag):
                    unreadable.append(silo)
                else:
                    shares[silo] = pair
        revealed = {silo: shares[silo][silo in alive] for silo in self._participants if silo in shares}
        return revealed, tuple(unreadable)

    def _sealing(self, sender: str, receiver: str) -> bytes:
        other = self._roster[receiver if sender == self.silo else sender].seal
        return _derive_key(self._seal, other, b"seal" + self._digest + json.dumps([sender, receiver]).encode())

    def _sign(self, content: bytes) -> bytes:
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))


def mask_key(private_key: X25519PrivateKey, other: bytes, digest: bytes) -> bytes:
    """Return the key of the mask that two silos share."""
    return _derive_key(private_key, other, b"mask" + digest)


def _derive_key(private_key: X25519PrivateKey, other: bytes, info: bytes) -> bytes:
    shared = private_key.exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(hashes.SHA256(), 32, None, _CONTEXT.encode() + info).derive(shared)


def commitment(digest: bytes, dealer: str, receiver: str, pair: Sequence[bytes]) -> bytes:
    """Return the digests of two shares that a silo deals another, of the mask key's and of the seed's, 64 bytes.

    They need no salt: a share is one of 2^521 - 1 equally likely numbers, so its digest tells nothing of it.
    """
    return b"".join(share_digest(digest, dealer, receiver, bool(of_seed), each) for of_seed, each in enumerate(pair))


def share_digest(digest: bytes, dealer: str, receiver: str, of_seed: bool, share: bytes) -> bytes:
    """Return the digest of one share, 32 bytes."""
    content = [_CONTEXT, "share", digest.hex(), dealer, receiver, of_seed, share.hex()]
    return hashlib.sha256(json.dumps(content).encode()).digest()


def seed_digest(digest: bytes, silo: str, seed: bytes) -> bytes:
    """Return the digest of a silo's seed of 32 random bytes, 32 bytes."""
    return hashlib.sha256(json.dumps([_CONTEXT, "seed", digest.hex(), silo, seed.hex()]).encode()).digest()


def sum_of(digest: bytes, participants: Sequence[str], alive: Collection[str]) -> bytes:
    """Return the bytes that are signed of a sum: who masked numbers for whom, and whose arrived."""
    return json.dumps([_CONTEXT, "sum", digest.hex(), list(participants), sorted(alive)]).encode()


def check_agreed(roster: Mapping[str, Keys], digest: bytes, silo: str, signature: bytes) -> None:
    """Check that a silo has signed the list of silos.

    Raises
    ------
    ProtocolError
        It has not.
    """
    try:
        _verify(roster[silo].certificate, signature, _agreement_text(digest))
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ProtocolError(f"{silo} has not signed this list of silos") from error


def check_confirmed(
    roster: Mapping[str, Keys],
    digest: bytes,
    participants: Sequence[str],
    alive: Collection[str],
    silo: str,
    signature: bytes,
) -> None:
    """Check that a silo has signed whose numbers arrived.

    Raises
    ------
    ProtocolError
        It has not.
    """
    try:
        _verify(roster[silo].certificate, signature, sum_of(digest, participants, alive))
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ProtocolError(f"{silo} has not confirmed whose numbers arrived") from error


def _agreement_text(digest: bytes) -> bytes:
    return json.dumps([_CONTEXT, "agreed", digest.hex()]).encode()


def _verify(certificate: bytes, signature: bytes, content: bytes) -> None:
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the certificate's key is no EC key")
    key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
