"""What second heads need around them."""

from collections.abc import Sequence

from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import SecondHead


class BesideLabels(SecondHead):
    """A second head with a loss of its own."""

    def facts(self) -> frozenset[str]:
        """Say that there are two heads."""
        return frozenset({Fact.SECOND_HEAD})

    def needs(self) -> Sequence[Need]:
        """Need losses that reach both heads."""
        detail = f"found {self.name}, but"
        ends = "whose loss is of one head; set one of them to {none: {}}"
        return (
            Need(Fact.SELF_SUPERVISION, f"{detail} selfSupervised is filled too, {ends}", refused=True),
            Need(Fact.MIXED_INPUTS, f"{detail} inputMixing is filled too, {ends}", refused=True),
        )
