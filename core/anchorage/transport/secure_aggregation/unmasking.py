"""What the server makes of the silos' answers: it tells wrong ones, and takes the masks off the sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from anchorage.transport.secure_aggregation.masks import Mask
from anchorage.transport.secure_aggregation.member import (
    Dealing,
    Keys,
    ProtocolError,
    check_agreed,
    check_confirmed,
    mask_key,
    roster_digest,
    seed_digest,
    share_digest,
    threshold,
)
from anchorage.transport.secure_aggregation.shamir import SHARE_BYTES, combine


class UnknownSumError(ProtocolError):
    """The masks do not come off.

    Parameters
    ----------
    message : str
        Why.
    silo : str
        Whose fault it is; empty where that cannot be told.
    """

    def __init__(self, message: str, silo: str = "") -> None:
        super().__init__(message)
        self.silo = silo


@dataclass(frozen=True, slots=True)
class Opening:
    """What one silo reveals."""

    shares: Mapping[str, bytes]
    """One share of every silo whose numbers were to be in the sum."""
    unreadable: Sequence[str] = ()
    """Those whose shares it could not open."""


class Group:
    """Who agreed on keys for a round, and what each dealt.

    Parameters
    ----------
    task : str
        Id of the task that asked for the keys; their owners know it.
    roster : Mapping
        Everybody's keys, in the order of the sums.
    """

    def __init__(self, task: str, roster: Mapping[str, Keys]) -> None:
        self.roster, self.digest, self.threshold = roster, roster_digest(task, roster), threshold(len(roster))
        self.scale = max(1, sum(keys.most for keys in roster.values()))
        self.dealt: dict[str, Dealing] = {}

    def check_dealing(self, silo: str, dealing: Dealing) -> Dealing:
        """Check what a silo deals and return it.

        Raises
        ------
        ProtocolError
            It is not for exactly the silos on the list, or the silo has not signed the list.
        """
        if dealing.sealed.keys() != self.roster.keys() - {silo} or dealing.commitments.keys() != self.roster.keys():
            raise ProtocolError(f"{silo} does not deal shares to exactly the silos of the round")
        check_agreed(self.roster, self.digest, silo, dealing.signature)
        return dealing

    def check_confirmed(self, silo: str, survivors: Sequence[str], signature: bytes) -> bytes:
        """Check a silo's signature of whose numbers arrived and return it.

        Raises
        ------
        ProtocolError
            It is none.
        """
        check_confirmed(self.roster, self.digest, self.participants, survivors, silo, signature)
        return signature

    def check_opening(self, silo: str, survivors: Sequence[str], opening: Opening) -> Opening:
        """Check what a silo reveals and return it.

        Raises
        ------
        ProtocolError
            It does not name exactly the participants, once each, or a share is not what its dealer committed to.
        """
        if sorted([*opening.shares, *opening.unreadable]) != sorted(self.participants) or silo in opening.unreadable:
            raise ProtocolError(f"{silo} does not answer for exactly the silos that masked their numbers")
        for dealer, share in opening.shares.items():
            both, of_seed = self.dealt[dealer].commitments[silo], dealer in survivors
            known = both[32:] if of_seed else both[:32]
            if len(share) != SHARE_BYTES or share_digest(self.digest, dealer, silo, of_seed, share) != known:
                raise ProtocolError(f"{silo} reveals another share of {dealer} than it was dealt")
        return opening

    @property
    def participants(self) -> tuple[str, ...]:
        """Who masks numbers for whom, in the order of the sums."""
        return tuple(silo for silo in self.roster if silo in self.dealt)

    def suffice(self, openings: Mapping[str, Opening]) -> bool:
        """Return whether there are enough shares of every participant."""
        return all(self._count_openings(silo, openings) >= self.threshold for silo in self.participants)

    def false_complainers(self, openings: Mapping[str, Opening]) -> list[str]:
        """Return who could not open the shares of more than a third, which do not lie all."""
        return [silo for silo, each in openings.items() if len(each.unreadable) > len(self.roster) // 3]

    def masks(self, survivors: Sequence[str], openings: Mapping[str, Opening]) -> list[Mask]:
        """Return what takes the masks off the sum of the survivors' numbers.

        Raises
        ------
        UnknownSumError
            There are too few shares of a silo, or they are not of the secret that it committed to.
        """
        masks, order = list[Mask](), list(self.roster)
        for silo in self.participants:
            shares = {order.index(s): each.shares[silo] for s, each in openings.items() if silo in each.shares}
            if len(shares) < self.threshold:
                raise self._too_few(silo, openings)
            secret = self._secret(silo, silo in survivors, dict(list(shares.items())[: self.threshold]))
            if silo in survivors:
                masks.append(Mask(secret, -1))
                continue
            lost = X25519PrivateKey.from_private_bytes(secret)
            for other in survivors:
                key = mask_key(lost, self.roster[other].mask, self.digest)
                masks.append(Mask(key, 1 if silo < other else -1))
        return masks

    def _count_openings(self, silo: str, openings: Mapping[str, Opening]) -> int:
        return sum(silo in each.shares for each in openings.values())

    def _secret(self, silo: str, of_seed: bool, shares: Mapping[int, bytes]) -> bytes:
        """Return a silo's secret of shares that are those that it dealt."""
        try:
            secret = combine(shares)
        except ValueError:
            secret = b""
        if of_seed:
            fits = seed_digest(self.digest, silo, secret) == self.dealt[silo].seed
        else:
            fits = bool(secret) and _public_half(secret) == self.roster[silo].mask
        if not fits:
            raise UnknownSumError(f"the shares that {silo} dealt are not of its secret", silo)
        return secret

    def _too_few(self, silo: str, openings: Mapping[str, Opening]) -> UnknownSumError:
        """Return whose fault it is that a silo's secret is not known: its own, if no more than a third of all are lost or lie.

        As many honest silos as the threshold have answered then, and would have opened honest shares.
        """
        most, lost = len(self.roster) // 3, len(self.roster) - len(openings)
        detail = (
            f"{self._count_openings(silo, openings)} silos could open the shares of {silo}, {self.threshold} are needed"
        )
        return UnknownSumError(detail, silo if lost < most else "")


def _public_half(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
