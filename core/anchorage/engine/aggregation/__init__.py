"""How updates become one model: weighers, the weighted mean in one pass, the asynchronous sum, metrics of confusion matrices."""

from anchorage.engine.aggregation.contribution_sum import ContributionSum
from anchorage.engine.aggregation.mean import NonFiniteUpdate, UnusableUpdate, find_nonfinite, weighted_mean
from anchorage.engine.aggregation.mixing import Mixing
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.server_step import ServerStep

__all__ = [
    "ContributionSum",
    "Mixing",
    "NonFiniteUpdate",
    "RoundMemory",
    "ServerStep",
    "UnusableUpdate",
    "find_nonfinite",
    "weighted_mean",
]
