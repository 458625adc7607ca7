"""What is noted of a run for MLflow; an observer of the engine."""

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
from numpy.typing import NDArray

from anchorage import __version__
from anchorage.api.federation import Federation
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import expect
from anchorage.api.silo_state import SiloState
from anchorage.api.slot import write_piece
from anchorage.api.task import Tally
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.tracking.outbox import Outbox
from anchorage.learning.model_hooks import TaskHooks
from anchorage.transport.messages import SYSTEM, Report

_REFUSED = re.compile(r"[^\w\-. ]")
"""What no name of a metric in MLflow may have, and slashes, which part it into folders."""

_NO_PARAMETERS = {
    "seed",
    "task",
    "method",
    "suspend",
    "active_deadline_seconds",
    "server",
    "admission",
    "deletion_policy",
    "tracking",
}
"""Fields of the spec that say nothing of how the model is trained, or are logged otherwise."""

EMBEDDINGS = "embeddings"
"""Name of a round's embeddings among its arrays."""
DIGEST = 16
"""Characters of a digest that are shown."""
MOST_SILO_DATASETS = 100
"""Datasets of silos that a run has at most."""

FIGURE_SETS = 4
"""How often in a run the tally and the embeddings are drawn, besides at its start; a set takes half a second."""


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
    task : TaskHooks
        The prediction task.
    parameters : mapping of str to Any
        What was chosen, as nested plain values; logged as dotted parameters.
    document : str
        The spec as text; logged as the artifact ``federation.yaml``.
    name, about : str
        The run's name, and its description until it has scores.
    tags : mapping of str to str
        What it is, for searches.
    images : mapping of str to mapping
        Fingerprints of the server's images (`anchorage.learning.data.fingerprints.Fingerprint`), by part; logged as datasets.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        federation: str,
        experiment: str,
        registered_model: str,
        rounds: int,
        task: TaskHooks,
        parameters: Mapping[str, Any],
        document: str,
        name: str = "",
        about: str = "",
        tags: Mapping[str, str] | None = None,
        images: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._outbox = outbox
        self._rounds, self._task = rounds, task
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call only starts the measurement
        key = uuid.uuid4().hex
        self._noted: set[int] = set()
        self._known_images: set[tuple[str, str]] = set()
        for event in outbox.events():
            if event["kind"] == "run":
                key = event["key"]
            elif event["kind"] == "round":
                self._noted.add(event["round"])
                self._known_images |= {(dataset["name"], dataset["digest"]) for dataset in event.get("datasets", ())}
        run = {"federation": federation, "experiment": experiment, "registeredModel": registered_model, "key": key}
        run |= {"name": name or federation, "about": about, "document": document}
        of_server = [
            _dataset(part, dataset["digest"], _counts(dataset), part) for part, dataset in (images or {}).items()
        ]
        lists = {"task": write_piece(task), "datasets": of_server}
        outbox.append("run", {**run, **lists, "tags": dict(tags or {}), "parameters": dict(flatten(parameters))})

    @classmethod
    def of(
        cls,
        outbox: Outbox,
        federation: Federation,
        method: ResolvedMethod,
        document: str,
        images: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> "TrackedRun":
        """Return the run of a federation whose method has every slot filled; `document` is its text with its silos.

        Parameters are what the method's preset and the documents say; options that neither names are left out.
        """
        name, spec = federation.metadata.name, federation.spec
        chosen = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NO_PARAMETERS)
        filled = method.model_dump(mode="json", by_alias=True, exclude_unset=True)
        tags = {
            "federation": name,
            "method": method.name,
            "network": spec.model.network,
            "version": __version__,
            "document": hashlib.sha256(document.encode()).hexdigest()[:DIGEST],
        }
        stages = "".join(f"{stage.method}, {stage.rounds} rounds, then " for stage in spec.warm_up)
        about = f"{stages}{method.name} on {spec.model.network}: {spec.rounds} rounds, {len(spec.task.outputs)} outputs"
        return cls(
            outbox,
            federation=name,
            experiment=spec.tracking.experiment or name,
            registered_model=spec.tracking.registered_model or name,
            rounds=spec.rounds,
            task=expect(spec.task, TaskHooks),
            parameters={"method": filled, "seed": spec.seed, **chosen, "outputs": tuple(spec.task.outputs)},
            document=document,
            name=f"{name} {method.name} seed {spec.seed}",
            about=f"{about}, seed {spec.seed}.",
            tags={f"anchorage.{key}": value for key, value in tags.items()},
            images=images,
        )

    def catch_up(self, history: Iterable[RoundRecord]) -> None:
        """Note the committed rounds that are not noted yet: the server was killed before, or the disk was full."""
        for record in history:
            if record.round not in self._noted:
                self._note(record, None, {})

    def note_models(self, models: Path) -> None:
        """Note that a folder has the models and their card, which is shown while the models become programs."""
        self._outbox.append("models", {"models": str(models.absolute())})

    def finish(self, code: str, models: Path | None) -> None:
        """Note the end: `code` of the catalogue or empty, and the folder with final.safetensors, best.safetensors and model.json."""
        self._outbox.append("end", {"code": code, "models": str(models.absolute()) if models else ""})

    def __call__(self, event: RunEvent) -> None:
        """Note a committed round; `finish` follows when the models are on disk."""
        if isinstance(event, RoundCommitted):
            self._note(event.record, event.report, event.test)

    def _note(self, record: RoundRecord, report: Report | None, test: Mapping[str, Report]) -> None:
        self._noted.add(record.round)
        drawn = record.round == self._rounds or record.round % max(1, -(-self._rounds // FIGURE_SETS)) == 0
        arrays = _drawings(report, "") if drawn else {}
        if record.embeddings is not None:
            arrays.pop(EMBEDDINGS, None)
            arrays[record.embeddings.projection.lower()] = record.embeddings.as_array()
        for name, scored in test.items():
            if name == "final" or scored is not test["final"]:
                arrays |= _drawings(scored, f"test-{name}-")
        metrics = {**record.metrics, **self._system(), **{f"seconds/{k}": v for k, v in record.seconds.items()}}
        if report is not None and report.tally:
            metrics |= self._details(report.tally)
        for name, tested in record.test.items():
            metrics |= {f"test/{name}/{metric}": value for metric, value in tested.items()}
            if name in test and test[name].tally:
                metrics |= {f"test/{name}/{metric}": value for metric, value in self._details(test[name].tally).items()}
        metrics |= {"bytes_up": record.bytes_up, "bytes_down": record.bytes_down}
        for silo in record.silos:
            metrics[f"silo/{silo.name}/weight"] = silo.weight
            metrics |= {_of_silo(silo.name, key): value for key, value in silo.metrics.items()}
            metrics |= {f"silo/{silo.name}/samples_{key}": count for key, count in silo.samples.items()}
        metrics["silos_counted"] = sum(silo.state == SiloState.COUNTED for silo in record.silos)
        values = {"round": record.round, "time": record.time, "digest": record.digest, "metrics": metrics}
        values["datasets"] = list(self._new_images(record))
        if record.embeddings is not None:
            values["layer"] = record.embeddings.layer
        self._outbox.append("round", values, arrays)

    def _new_images(self, record: RoundRecord) -> Iterable[dict[str, Any]]:
        """Yield the images of silos that have not been noted: digests and counts, as the silos told them."""
        for silo in record.silos:
            key = (silo.name, silo.fingerprint[:DIGEST])
            if silo.fingerprint and key not in self._known_images and len(self._known_images) < MOST_SILO_DATASETS:
                self._known_images.add(key)
                yield _dataset(*key, {name: int(count) for name, count in silo.samples.items()}, "silo")

    def _details(self, tally: Tally) -> dict[str, float]:
        """Return the task's further figures; characters that MLflow refuses in names become underscores."""
        parts = {tuple(name.split("/")): float(value) for name, value in self._task.details(tally).items()}
        return {"/".join(_REFUSED.sub("_", part) for part in name): value for name, value in parts.items()}

    def _system(self) -> dict[str, float]:
        """Return what the server uses: share of one CPU in percent since the last call, resident memory in MB."""
        return {
            "system/server_cpu_percent": self._process.cpu_percent(),
            "system/server_memory_mb": self._process.memory_info().rss / 1e6,
        }


def _of_silo(silo: str, key: str) -> str:
    """Return a silo's metric as MLflow has it, which shows names that begin with ``system/`` by themselves."""
    used = key.removeprefix(SYSTEM)
    return f"silo/{silo}/{key}" if used == key else f"{SYSTEM}{silo}/{used}"


def _dataset(name: str, digest: str, images: Mapping[str, int], use: str) -> dict[str, Any]:
    return {"name": name, "digest": digest[:DIGEST], "images": dict(images), "use": use}


def _counts(fingerprint: Mapping[str, Any]) -> dict[str, int]:
    unlabelled = {"without label": fingerprint["unlabelled"]} if fingerprint["unlabelled"] else {}
    return {**fingerprint["classes"], **unlabelled}


def _drawings(report: Report | None, prefix: str) -> dict[str, NDArray[Any]]:
    """Return what is drawn of a report, by the names of the figures."""
    if report is None:
        return {}
    embeddings = {} if report.embeddings is None else {EMBEDDINGS: report.embeddings}
    return {f"{prefix}{key}": array for key, array in ({**report.tally, **embeddings}).items()}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield nested values as dotted names and text: lists of plain values as one text, others by position; None and empty ones left out.

    A slot whose alternative has nothing to set is named by it, unless it is ``none``: ``{"weighting": {"dvw": {}}}`` gives ``weighting``, ``dvw``.
    """
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, list | tuple):
            plain = not any(isinstance(item, Mapping | list | tuple) for item in value)
            value = (", ".join(map(str, value)) or None) if plain else {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping) and list(value.values()) == [{}]:
            value = next(iter(value.keys() - {"none"}), None)
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        elif value is not None:
            yield name, str(value)
