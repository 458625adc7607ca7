"""``python -m anchorage.engine.tracking --outbox DIR --uri URI``: sends an outbox to MLflow."""

import sys

from anchorage.api.imports import import_large


def run() -> int:
    """Import MLflow and send, as `anchorage.engine.tracking.sender` does; return the exit status."""
    import_large("anchorage.engine.tracking.sender")
    from anchorage.engine.tracking.sender import main

    return main()


sys.exit(run())
