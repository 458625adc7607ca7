"""How updates become one model: weights, weighted means in one pass, the asynchronous community, and metrics of confusion matrices."""

from anchorage.engine.aggregation.apart import average_apart
from anchorage.engine.aggregation.batch_norm import pool_variances
from anchorage.engine.aggregation.community import Community
from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite, weighted_mean
from anchorage.engine.aggregation.memory import build_memory
from anchorage.engine.aggregation.mixing import Mixing, build_mixing
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.server_step import Keep, ServerStep, build_server_step
from anchorage.engine.aggregation.weighting import build_weigher

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
