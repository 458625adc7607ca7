"""How updates become one model: weights, weighted means in one pass, the asynchronous community, and metrics of confusion matrices."""

from anchorage.aggregation.community import Community
from anchorage.aggregation.mean import NonFiniteUpdate, find_nonfinite, weighted_mean
from anchorage.aggregation.memory import RoundMemory, build_memory
from anchorage.aggregation.server_step import ServerStep, build_server_step
from anchorage.aggregation.weighting import build_weigher

__all__ = [
    "Community",
    "NonFiniteUpdate",
    "RoundMemory",
    "ServerStep",
    "build_memory",
    "build_server_step",
    "build_weigher",
    "find_nonfinite",
    "weighted_mean",
]
