"""How far an outbox has been sent: written by the sender, read by the server."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from anchorage.transport.files import write_atomically

MOST_LEFT_OUT = 100
"""Events left out of which the reasons are kept."""
_STATE = "sender.json"


@dataclass
class Progress:
    """What has been sent, on disk beside the events."""

    uri: str = ""
    """Where it was sent, without a password."""
    offset: int = 0
    """Bytes of the events that are done."""
    run_id: str = ""
    """The run, once it exists."""
    experiment_id: str = ""
    """Its experiment."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the registered model by digest."""
    registered_model: str = ""
    """Name of the registered model, once it has a version."""
    final_version: str = ""
    best_version: str = ""
    """Versions of the run's final and best model."""
    drawn: bool = False
    """Whether the model card's figures are drawn."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Why MLflow has no more than a part of an event or a model, by what is missing."""
    trouble: str = ""
    """Why MLflow did not take the next event when it was last asked; empty where it did."""

    @classmethod
    def read(cls, folder: Path) -> "Progress":
        """Return what a sender wrote, a new one where there is nothing."""
        path = folder / _STATE
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace the file."""
        write_atomically(folder / _STATE, json.dumps(asdict(self)).encode())

    def leave_out(self, what: str, why: str) -> None:
        """Note that MLflow does not get something."""
        if len(self.left_out) < MOST_LEFT_OUT:
            self.left_out[what] = why
