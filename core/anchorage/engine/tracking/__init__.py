"""MLflow: what the server notes of a run (`Outbox`, `TrackedRun`), and the process that sends it (`Sender`). Only that process imports mlflow."""

from anchorage.engine.tracking.outbox import PROGRAMS, Outbox, program_file
from anchorage.engine.tracking.process import Sender, Sent, what_is_sent
from anchorage.engine.tracking.progress import Progress
from anchorage.engine.tracking.run import TrackedRun

__all__ = ["PROGRAMS", "Outbox", "Progress", "Sender", "Sent", "TrackedRun", "program_file", "what_is_sent"]
