"""How updates become one model: weights, weighted means in one pass, the asynchronous community, and metrics of confusion matrices."""

from anchorage.aggregation.community import Community
from anchorage.aggregation.mean import NonFiniteUpdate, find_nonfinite, weighted_mean
from anchorage.aggregation.weighting import build_weigher

__all__ = ["Community", "NonFiniteUpdate", "build_weigher", "find_nonfinite", "weighted_mean"]
