"""What every piece has for which silos send sums of frozen features in place of a trained model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.errors.transfer import OUT_OF_BOUNDS
from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.engine.aggregation.apart import summed_apart
from anchorage.engine.aggregation.mean import UnusableUpdate
from anchorage.engine.aggregation.single_tensors import TensorReader
from anchorage.pieces.slots import ServerTraining
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import MOMENTS, Layout
from anchorage.transport.tensors.model import ModelBytes

if TYPE_CHECKING:
    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.network import Network


class SumsOfFeatures(ServerTraining):
    """Silos send sums over their images, of which the server makes a part of the model; no silo trains."""

    trains: ClassVar[bool] = True
    needs_network: ClassVar[bool] = True
    needs_anchors: ClassVar[bool] = False

    def needs(self) -> Sequence[Need]:
        """Need rounds, and silos that train on nothing."""
        mode = f"found Asynchronous, but {self.name} are summed over a round's silos; set Synchronous"
        alone = f"found {{}}, but with serverTraining {self.name} no silo trains; set {{{{none: {{{{}}}}}}}}"
        return (
            Need(Fact.ROUNDS, mode, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),
            *(
                Need(fact, alone.format(slot), refused=True, path=("spec", "method", slot))
                for fact, slot in ((Fact.PSEUDO_LABELS, "pseudoLabels"), (Fact.SELF_SUPERVISION, "selfSupervised"))
            ),
        )

    @abstractmethod
    def shapes(self, network: Network) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the sums by the names of their tensors, float64."""

    @property
    @abstractmethod
    def counted(self) -> Sequence[str]:
        """Names of the sums that count images."""

    @abstractmethod
    def miscounted(self, samples: Mapping[str, int], counts: Mapping[str, NDArray[np.float64]]) -> str | None:
        """Return how counts, by the names of their tensors, are none of the images that were announced; None where they may be."""

    def down_layout(self, layout: Layout, network: Network) -> Layout:
        """Add the sums, which are zero on their way down."""
        network_tensors = [(t.name, t.dtype, t.shape) for t in layout.tensors]
        return Layout.of([*network_tensors, *((name, "F64", shape) for name, shape in self.shapes(network).items())])

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave nothing but the sums."""
        return layout.select(t.name for t in layout.tensors if t.name.startswith(MOMENTS))

    def travels_beside(self, layout: Layout, model: ModelBytes | None) -> Mapping[str, NDArray[Any]]:
        """Return zeros: what the server summed up goes no further."""
        return {t.name: np.zeros(t.shape) for t in layout.tensors if t.name.startswith(MOMENTS)}

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Sum up.

        Raises
        ------
        UnusableUpdate
            A silo's counts are not those of the images that it announced.
        """
        counts = [mean.layout.by_name[name] for name in self.counted]
        for index, (update, announcement) in enumerate(zip(updates, announcements, strict=True)):
            read = TensorReader(update)
            mistake = self.miscounted(announcement.samples, {entry.name: read(entry) for entry in counts})
            if mistake is not None:
                raise UnusableUpdate(index, OUT_OF_BOUNDS, mistake)
        return summed_apart(mean, updates, MOMENTS)
