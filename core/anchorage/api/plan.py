"""A federation as the needs of its pieces see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from anchorage.api.fact import Fact
from anchorage.api.federation import FederationSpec, Silo
from anchorage.api.method import ResolvedMethod


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
        plan_facts = {
            Fact.ARRIVALS if self.asynchronous else Fact.ROUNDS: True,
            Fact.ANCHORS: spec.anchor_data is not None,
            Fact.EVALUATION: bool(spec.server_data.keys() & {"validation", "test"}),
            Fact.VALIDATION_IMAGES: "validation" in spec.server_data,
            Fact.LABELLED_SILOS: any(silo.spec.labels != "None" for silo in self.silos),
            Fact.VALIDATION_CYCLE: self.method.local.cycle is not None,
            Fact.FROZEN_PARTS: spec.model.trainable != "All",
            Fact.OTHER_SILOS: len(self.silos) != 1,
        }
        return self.method.facts() | {fact for fact, holds in plan_facts.items() if holds}
