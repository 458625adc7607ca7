"""A federation as the needs of its pieces see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from anchorage.api.federation import FederationSpec, Silo
from anchorage.api.method import ResolvedMethod

ROUNDS = "rounds"
"""Fact: the protocol is synchronous."""
ARRIVALS = "arrivals"
"""Fact: the protocol is asynchronous: every update counts as it arrives."""
ANCHORS = "anchors"
"""Fact: the server has labelled anchors."""
EVALUATION = "evaluation"
"""Fact: the server evaluates the global model."""
VALIDATION_IMAGES = "validationImages"
"""Fact: the server evaluates the global model on validation images."""
LABELLED_SILOS = "labelledSilos"
"""Fact: a silo has labels."""
LABELS_UNREAD = "labelsUnread"
"""Fact, of pieces: no silo trains on its own labels by a loss of the document's choice."""
VALIDATION_CYCLE = "validationCycle"
"""Fact: silos train as long as it helps."""
FROZEN = "frozenParts"
"""Fact: some of the network does not train (`spec.model.trainable`)."""
OTHER_SILOS = "otherSilos"
"""Fact: there is more than one silo, or none is known yet."""


@dataclass(frozen=True)
class Plan:
    """A federation's document, its silos, and its method with every slot filled."""

    spec: FederationSpec
    silos: Sequence[Silo]
    method: ResolvedMethod
    warms_up: bool = False
    """Whether the method is that of a stage of the warm-up."""

    @property
    def asynchronous(self) -> bool:
        """Whether every update counts as it arrives."""
        return self.spec.protocol.mode == "Asynchronous"

    @cached_property
    def facts(self) -> frozenset[str]:
        """Return what holds, of the documents and of the method's pieces."""
        spec = self.spec
        own = {
            ARRIVALS if self.asynchronous else ROUNDS: True,
            ANCHORS: spec.anchor_data is not None,
            EVALUATION: bool(spec.server_data.keys() & {"validation", "test"}),
            VALIDATION_IMAGES: "validation" in spec.server_data,
            LABELLED_SILOS: any(silo.spec.labels != "None" for silo in self.silos),
            VALIDATION_CYCLE: self.method.local.cycle is not None,
            FROZEN: spec.model.trainable != "All",
            OTHER_SILOS: len(self.silos) != 1,
        }
        return self.method.facts() | {fact for fact, holds in own.items() if holds}
