"""What every encoding that rounds needs: a server that still has the model that an update came from."""

from collections.abc import Iterator, Sequence

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import Need
from anchorage.api.plan import Plan
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.engine.strategy import sends_own_models
from anchorage.pieces.slots import UpdateEncoding


class RoundedChange(UpdateEncoding):
    """The change of the model that a silo received, rounded."""

    def needs(self) -> Sequence[Need]:
        """Need rounds: the asynchronous server does not keep the models that silos started from."""
        message = (
            f"found Asynchronous, but encoding {self.name} rounds the change of the model that a silo started from, which the asynchronous "
            "server does not keep; set Synchronous, or encoding: {float32: {}}"
        )
        return (Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need updates that are one model each, of the model that all silos receive."""
        for piece in plan.method.pieces():
            has_own_models = sends_own_models(piece, plan.spec.task, plan.spec.seed)
            if has_own_models or (isinstance(piece, WeightingEngineHooks) and piece.repeats):
                why = (
                    "sends silos models of their own"
                    if has_own_models
                    else "has a silo train more than once in a round"
                )
                message = f"found {self.name}, but {piece.name} {why}, and such updates travel as they are; set float32"
                yield Mistake(MEANINGLESS_OVERRIDE, self.path, message)
