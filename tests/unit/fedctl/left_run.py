"""A federation's file, and a run of it that was interrupted, for tests."""

from typing import Any

from anchorage.api.status import (
    Condition,
    FederationStatus,
    timestamp,
)
from fedctl.workdir import Workdir

DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 4
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg}
  evaluation: {validation: {format: Digits, use: Test, testPercent: 20}}
---
kind: Silo
metadata: {name: a}
spec:
  federation: tiny
  labels: All
  managed: {data: {format: Digits, use: Part, testPercent: 20, partition: {recipe: Iid, parts: 2, part: 0}}}
---
kind: Silo
metadata: {name: b}
spec:
  federation: tiny
  labels: All
  managed: {data: {format: Digits, use: Part, testPercent: 20, partition: {recipe: Iid, parts: 2, part: 1}}}
"""


def leave(run: Workdir, status: FederationStatus) -> None:
    run.status.write_text(status.model_dump_json(by_alias=True))


def condition(kind: str, status: Any) -> Condition:
    return Condition(type=kind, status=status, reason="Running", last_transition_time=timestamp(1.8e9))


def record(number: int) -> dict[str, Any]:
    silos = [
        {"name": "a", "state": "Counted", "weight": 1.0, "samples": {}, "metrics": {}, "code": "", "message": ""},
        {
            "name": "b",
            "state": "Failed",
            "weight": 0.0,
            "samples": {},
            "metrics": {},
            "code": "ANC-3004",
            "message": "NaN",
        },
    ]
    return {
        "schemaVersion": 1,
        "round": number,
        "digest": "d",
        "time": 1.8e9 + number,
        "metrics": {"accuracy": 0.25 * number, "loss": None},
        "silos": silos if number else [],
        "seconds": {"train": 1.5} if number else {},
        "bytesUp": 44_700_000 * number,
        "bytesDown": 0,
        "contributions": {},
        "checksum": "0",
    }
