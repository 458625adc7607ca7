"""Failures of MLflow: 40xx. None of them stops a run: unsent results stay on disk."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 7)

TRACKING_UNREACHABLE = failure(
    "ANC-4001 TrackingUnreachable",
    "MLflow does not accept the results: the tracking server is down or refuses them.",
    "Training continues. Correct spec.tracking.uri or repair the tracking server, then start the run again with the same folder: the stored "
    "results are sent.",
)
TRACKING_INCOMPLETE = failure(
    "ANC-4002 TrackingIncomplete",
    "Some results were not sent to MLflow: they were refused, damaged on disk, or could not be stored.",
    "Read the warnings in the server's log. The round journal contains all numbers.",
)
