"""What the rules for methods look at."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorage.api.federation import FederationSpec, Silo
from anchorage.api.method import ResolvedMethod


@dataclass(frozen=True)
class Plan:
    """A federation as the rules see it: its document, its silos, its method with every slot filled."""

    spec: FederationSpec
    silos: Sequence[Silo]
    method: ResolvedMethod

    @property
    def asynchronous(self) -> bool:
        """Whether every update counts as it arrives."""
        return self.spec.protocol.mode == "Asynchronous"

    @property
    def server_learns(self) -> bool:
        """Whether the server trains on labelled anchors."""
        return self.method.server_training.type == "Anchors"

    @property
    def labelled_silos(self) -> int:
        """Silos with labels."""
        return sum(silo.spec.labels != "None" for silo in self.silos)
