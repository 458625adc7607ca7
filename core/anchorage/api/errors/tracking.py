"""Failures of MLflow: 40xx. None of them stops a run: unsent results stay on disk, and its end says so."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 7)

TRACKING_UNREACHABLE = failure(
    "ANC-4001 TrackingUnreachable",
    "MLflow is down or refuses the results.",
    "Correct spec.tracking.uri, repair the tracking server, or for a log-in set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (in "
    "a cluster mlflow.auth or defaults.trackingSecret of the chart), then start the run again with the same folder: it sends what is "
    "left. In a cluster the server asks every minute.",
)
TRACKING_INCOMPLETE = failure(
    "ANC-4002 TrackingIncomplete",
    "Some results were not sent to MLflow: they were refused, damaged on disk, or could not be stored.",
    "Read the warnings in the server's log. The round journal has all numbers, and the folder of the run the models.",
)
UNSENT = (TRACKING_UNREACHABLE, TRACKING_INCOMPLETE)
"""Failures with which a run ends whose rounds are all committed."""
