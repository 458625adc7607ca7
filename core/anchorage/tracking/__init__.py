"""MLflow: what the server notes of a run (`Outbox`, `TrackedRun`), and the process that sends it (`Sender`). Only that process imports mlflow."""

from anchorage.tracking.outbox import Outbox
from anchorage.tracking.process import Sender, Sent
from anchorage.tracking.run import TrackedRun

__all__ = ["Outbox", "Sender", "Sent", "TrackedRun"]
