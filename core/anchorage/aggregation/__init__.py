"""How updates become one model: weights, weighted means in one pass, the asynchronous community, and metrics of confusion matrices."""

from anchorage.aggregation.apart import average_apart
from anchorage.aggregation.batch_norm import pool_variances
from anchorage.aggregation.community import Community
from anchorage.aggregation.mean import NonFiniteUpdate, find_nonfinite, weighted_mean
from anchorage.aggregation.memory import build_memory
from anchorage.aggregation.mixing import Mixing, build_mixing
from anchorage.aggregation.round_memory import RoundMemory
from anchorage.aggregation.server_step import Keep, ServerStep, build_server_step
from anchorage.aggregation.weighting import build_weigher

__all__ = [
    "Community",
    "Keep",
    "Mixing",
    "NonFiniteUpdate",
    "RoundMemory",
    "ServerStep",
    "average_apart",
    "build_memory",
    "build_mixing",
    "build_server_step",
    "build_weigher",
    "find_nonfinite",
    "pool_variances",
    "weighted_mean",
]
