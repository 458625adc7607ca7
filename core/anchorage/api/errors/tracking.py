"""Failures of MLflow: 40xx. None of them stops a run: unsent results stay on disk, and its end says so."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 7)

TRACKING_UNREACHABLE = failure(
    "ANC-4001 TrackingUnreachable",
    "MLflow is down or refuses the results.",
    "Correct spec.tracking.uri or the log-in (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; in a cluster mlflow.auth or "
    "defaults.trackingSecret of the chart), or repair the tracking server. Then start the run again: it sends what is left. In a cluster the "
    "server retries every minute.",
)
TRACKING_INCOMPLETE = failure(
    "ANC-4002 TrackingIncomplete",
    "MLflow lacks some results.",
    "Read the warnings in the server's log. The run's folder has the models, and its journal all numbers.",
)
UNSENT = (TRACKING_UNREACHABLE, TRACKING_INCOMPLETE)
"""Failures with which a run ends whose rounds are all committed."""
