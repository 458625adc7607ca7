"""The largest changes alone, with error feedback (Stich et al. 2018, "Sparsified SGD with memory", Algorithm 1)."""

from collections.abc import Iterator
from fractions import Fraction as Exact

from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import piece
from anchorage.api.plan import Plan
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.codings import TopCoding


@piece("topK")
class TopK(RoundedChange):
    """Only the largest changes of every tensor (top-k sparsification).

    They take 6 bytes each; silos add the rest to their next update.
    """

    share: Fraction = Field(
        "0.01",
        description="Share of each tensor's changes that is sent, above 0 and at most 0.5, in 6 bytes each; a silo adds what was not sent "
        "to its next update.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need a share that makes an update shorter."""
        yield from super().check(plan)
        if not 0 < Exact(self.share) <= Exact(1, 2):
            message = f"found {self.share}, allowed is above 0, and up to 0.5: a number that is sent with its place has 6 bytes in place of 4"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("share"), message)

    def coding(self) -> TopCoding:
        """Return the coding."""
        return TopCoding(share=Exact(self.share), feedback=True)
