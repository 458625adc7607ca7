"""Central differential privacy: noise at the server (McMahan et al. 2018, arXiv:1710.06963, Algorithm 1)."""

from collections.abc import Iterator, Sequence

from pydantic import Field

from anchorage.api.base import AboveZero, Share
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import Need, piece
from anchorage.api.plan import Plan
from anchorage.engine.aggregation.noised_mean import NoisedMean
from anchorage.pieces.slots import Aggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("privateMean")
class PrivateMean(Aggregation):
    """Mean with Gaussian noise that the server adds (DP-FedAvg)."""

    compares_norms = False

    clip_norm: AboveZero = Field(
        "1",
        description="Maximum L2 norm of an update; larger updates are scaled down to it, at the silo and at the server.",
    )
    noise_multiplier: AboveZero = Field(
        "1",
        description="Standard deviation of the noise in the sum of the updates, as a multiple of `clipNorm`. A larger value lowers the "
        "privacy loss epsilon and the accuracy, most with few silos.",
    )
    delta: Share = Field(
        "0.00001",
        description="Value of delta for which the privacy loss epsilon is reported, far below 1 divided by the number of silos.",
    )

    @property
    def bound(self) -> float:
        """The norm to which silos scale their updates."""
        return float(self.clip_norm)

    @property
    def server_noise(self) -> str:
        """The noise of the sum."""
        return f"Gaussian noise of standard deviation {float(self.noise_multiplier) * self.bound:g} to every number of the updates' sum"

    def facts(self) -> frozenset[str]:
        """Say that nothing else of silos may reach those who get the model."""
        return frozenset({Fact.PRIVATE_MODEL})

    def needs(self) -> Sequence[Need]:
        """Need updates that count alike: the weight of one is told, and the noise is for one."""
        message = "found another one, but privateMean adds noise for updates that count alike; set uniform"
        return (Need(Fact.UNIFORM_WEIGHTS, message, path=("spec", "method", "weighting")),)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need that every model of silos' updates has noise, from the first round on."""
        if plan.spec.warm_up:
            message = f"found a warm-up before {self.name}: what its rounds teach the model has no noise; remove it"
            yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "warmUp"), message)

    def start(self) -> NoisedMean:
        """Return the aggregation of one run."""
        return NoisedMean(self.bound, float(self.noise_multiplier), float(self.delta))

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the noised mean of a run of one round."""
        return self.start().aggregate(updates, weights, layout, model)
