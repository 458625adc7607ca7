"""What server optimisers share that take the mean of a whole round."""

from collections.abc import Sequence

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import ServerStep

MODE = ("spec", "protocol", "mode")


class WholeRoundStep(ServerStep):
    """A server optimiser of synchronous rounds."""

    def needs(self) -> Sequence[Need]:
        """Need synchronous rounds."""
        detail = f"found Asynchronous, but the server step {self.name} takes the mean of a whole round"
        message = f"{detail}; set Synchronous, or serverStep: {{replace: {{}}}}"
        return (Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=MODE),)
