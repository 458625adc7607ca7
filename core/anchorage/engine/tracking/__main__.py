"""``python -m anchorage.engine.tracking --outbox DIR --uri URI``: sends an outbox to MLflow."""

import gc
import sys

from anchorage.api.imports import import_large
from anchorage.engine.tracking.priority import yield_to_rounds


def run() -> int:
    """Import MLflow and send, as `anchorage.engine.tracking.sender` does; return the exit status."""
    yield_to_rounds()  # also with the imports: silos begin meanwhile
    import_large("anchorage.engine.tracking.sender")
    from anchorage.engine.tracking.sender import main

    status = main()
    gc.freeze()  # a search for garbage at the end would take longer than the rest of it
    return status


sys.exit(run())
