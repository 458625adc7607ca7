"""Failures of MLflow: 40xx. None of them stops a run: what is to be sent stays on disk."""

from anchorage.api.errors.catalogue import failure

TRACKING_UNREACHABLE = failure(
    "ANC-4001",
    "TrackingUnreachable",
    "MLflow does not take the results: the tracking server is down or refuses them.",
    "Nothing for the training, it goes on. Mend spec.tracking.uri or the tracking server and start the run again on the same folder: "
    "what was kept is sent.",
    7,
)
TRACKING_INCOMPLETE = failure(
    "ANC-4002",
    "TrackingIncomplete",
    "Some results did not go to MLflow: they were refused, damaged on disk, or there was no room to keep them.",
    "See the warnings in the server's log; the round journal has every number.",
    7,
)
