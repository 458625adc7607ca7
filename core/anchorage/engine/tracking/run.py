"""What is noted of a run for MLflow; an observer of the engine."""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from anchorage.api.federation import Federation
from anchorage.api.method import ResolvedMethod
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.tracking.outbox import Outbox
from anchorage.transport.messages import Report

_REFUSED = re.compile(r"[^\w\-. ]")
"""What no name of a metric in MLflow may have, and slashes, which part it into folders."""

FIGURE_SETS = 10
"""How often in a run the confusion matrix and the embeddings are drawn, besides after the last round."""


class TrackedRun:
    """Notes a run's parameters, rounds and end in an outbox.

    Parameters
    ----------
    outbox : Outbox
        Of this run; a restarted server gives the same one again.
    federation, experiment, registered_model : str
        Names of the federation, the MLflow experiment and the registered model.
    rounds : int
        Rounds of the whole run.
    classes : sequence of str
        Names of the classes, in the order of the model's outputs.
    parameters : mapping of str to Any
        The spec as nested plain values; logged as dotted parameters.
    document : str
        The spec as text; logged as the artifact ``federation.yaml``.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        federation: str,
        experiment: str,
        registered_model: str,
        rounds: int,
        classes: Sequence[str],
        parameters: Mapping[str, Any],
        document: str,
    ) -> None:
        self._outbox = outbox
        self._rounds, self._classes = rounds, classes
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call only starts the measurement
        key = uuid.uuid4().hex
        self._noted: set[int] = set()
        for event in outbox.events():
            if event["kind"] == "run":
                key = event["key"]
            elif event["kind"] == "round":
                self._noted.add(event["round"])
        run = {"federation": federation, "experiment": experiment, "registeredModel": registered_model, "key": key}
        outbox.append(
            "run", {**run, "classes": list(classes), "parameters": dict(flatten(parameters)), "document": document}
        )

    @classmethod
    def of(cls, outbox: Outbox, federation: Federation, method: ResolvedMethod, document: str) -> "TrackedRun":
        """Return the run of a federation whose method has every slot filled; `document` is its text with its silos."""
        name, spec = federation.metadata.name, federation.spec
        parameters = spec.model_dump(mode="json", by_alias=True, exclude={"method"})
        return cls(
            outbox,
            federation=name,
            experiment=spec.tracking.experiment or name,
            registered_model=spec.tracking.registered_model or name,
            rounds=spec.rounds,
            classes=spec.task.classes,
            parameters={**parameters, "method": method.model_dump(mode="json", by_alias=True)},
            document=document,
        )

    def catch_up(self, history: Iterable[RoundRecord]) -> None:
        """Note the committed rounds that are not noted yet: the server was killed before, or the disk was full."""
        for record in history:
            if record.round not in self._noted:
                self._note(record, None, {})

    def finish(self, code: str, models: Path | None) -> None:
        """Note the end: `code` of the catalogue or empty, and the folder with final.safetensors, best.safetensors and model.json."""
        self._outbox.append("end", {"code": code, "models": str(models.absolute()) if models else ""})

    def __call__(self, event: RunEvent) -> None:
        """Note a committed round; `finish` follows when the models are on disk."""
        if isinstance(event, RoundCommitted):
            self._note(event.record, event.report, event.test)

    def _note(self, record: RoundRecord, report: Report | None, test: Mapping[str, Report]) -> None:
        self._noted.add(record.round)
        drawn = record.round == self._rounds or record.round % max(1, self._rounds // FIGURE_SETS) == 0
        arrays = _drawings(report, "") if drawn else {}
        for name, scored in test.items():
            if name == "final" or scored is not test["final"]:
                arrays |= _drawings(scored, f"test-{name}-")
        metrics = {**record.metrics, **self._system(), **{f"seconds/{k}": v for k, v in record.seconds.items()}}
        if report is not None and report.confusion is not None:
            metrics |= recalls(report.confusion, self._classes)
        for name, tested in record.test.items():
            metrics |= {f"test/{name}/{metric}": value for metric, value in tested.items()}
            if name in test and (counts := test[name].confusion) is not None:
                metrics |= {f"test/{name}/{metric}": value for metric, value in recalls(counts, self._classes).items()}
        metrics |= {"bytes_up": record.bytes_up, "bytes_down": record.bytes_down}
        for silo in record.silos:
            metrics[f"silo/{silo.name}/weight"] = silo.weight
            metrics |= {f"silo/{silo.name}/{key}": value for key, value in silo.metrics.items()}
            metrics |= {f"silo/{silo.name}/samples_{key}": count for key, count in silo.samples.items()}
        metrics["silos_counted"] = sum(silo.state == "Counted" for silo in record.silos)
        values = {"round": record.round, "time": record.time, "digest": record.digest, "metrics": metrics}
        self._outbox.append("round", values, arrays)

    def _system(self) -> dict[str, float]:
        """Return what the server uses: share of one CPU in percent since the last call, resident memory in MB."""
        return {
            "system/server_cpu_percent": self._process.cpu_percent(),
            "system/server_memory_mb": self._process.memory_info().rss / 1e6,
        }


def _drawings(report: Report | None, prefix: str) -> dict[str, NDArray[Any]]:
    """Return what is drawn of a report, by the names of the figures."""
    pairs = {} if report is None else {"confusion": report.confusion, "embeddings": report.embeddings}
    return {f"{prefix}{key}": array for key, array in pairs.items() if array is not None}


def recalls(confusion: NDArray[np.int64], classes: Sequence[str]) -> dict[str, float]:
    """Return the recall of each class that has test images as ``recall/CLASS``; characters that MLflow refuses become underscores."""
    truths = confusion.sum(1)
    return {
        f"recall/{_REFUSED.sub('_', name)}": float(confusion[c, c] / truths[c])
        for c, name in enumerate(classes)
        if truths[c]
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield nested values as dotted names and text; lists by position, None and empty ones left out."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, list | tuple):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        elif value is not None:
            yield name, str(value)
