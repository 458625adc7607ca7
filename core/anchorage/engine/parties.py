"""What is told of a round in which every silo has a model of its own (SOLO, methods reference, 6.1)."""

from collections.abc import Sequence

import numpy as np

from anchorage.transport.messages import Report


def over_silos(reports: Sequence[Report]) -> Report | None:
    """Return every metric's mean and, as ``NAME_std``, its standard deviation over the silos, of which these are all; None without any."""
    if not reports:
        return None
    values_by_metric = {name: [report.metrics[name] for report in reports] for name in reports[0].metrics}
    means = {name: float(np.mean(values)) for name, values in values_by_metric.items()}
    return Report({**means, **{f"{name}_std": float(np.std(values)) for name, values in values_by_metric.items()}})
