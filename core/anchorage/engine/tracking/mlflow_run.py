"""One run in MLflow: parameters, metrics, figures, the spec, and the registered models."""

import base64
import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from matplotlib.figure import Figure
from mlflow.entities import (
    Dataset,
    DatasetInput,
    Experiment,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    RunTag,
)
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import AnyType, Object, Property
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_RUN_NOTE, MLFLOW_USER
from numpy.typing import NDArray
from pandas import DataFrame  # type: ignore[import-untyped]
from PIL import Image

from anchorage.api.card_text import verdict
from anchorage.api.imports import import_large
from anchorage.api.inference import DESCRIPTION, Inference, Weights, description_of, read_inference
from anchorage.api.model_card import CARD, CARD_TEXT, EXAMPLES, Assessment, ModelCard
from anchorage.api.piece import expect
from anchorage.api.slot import read_piece
from anchorage.api.task import OutputKind
from anchorage.engine.tracking import figures
from anchorage.engine.tracking.headline import EXPERIMENT, LABELS_ALONE, SITE_ALONE, SUPERVISED_BOUND, headline
from anchorage.engine.tracking.outbox import program_file
from anchorage.engine.tracking.run import EMBEDDINGS
from anchorage.engine.tracking.sqlite_store import make_store
from anchorage.learning.data import decoding, intensity
from anchorage.learning.model_hooks import TaskHooks

KEY_TAG = "anchorage.run"
CODE_TAG = "anchorage.code"
DIGEST_TAG = "anchorage.digest"
NOTE_TAG = "anchorage.description"
"""Digest of the description that was written last; people have edited one that has another."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""The kind of experiment that MLflow shows as model training, and not as GenAI; MLflow has no name for the tag."""
FIGURES = "figures"
"""Folder of the run's pictures."""
RESULTS = "0-results.md"
"""Artifact with the scores; its name sorts first."""
IMAGE = "image"
"""The column of images that a registered model takes."""
PROBABILITIES, VALUES = "probabilities", "values"
"""Columns of what it returns."""
_SERVING = Path(__file__).with_name("serving.py")
"""The registered model's code, which MLflow runs; it is not imported."""
_SERVING_VOLUMES = _SERVING.with_name("serving_volumes.py")
"""The same of a model of volumes, which needs Anchorage."""
_SQLITE = "sqlite:///"
_LOGGED = "models:/"
"""What the source of a version begins with, before the id of the logged model."""
_LONGEST_PARAM = 6000
_LONGEST_TAG = 8000
_PARAMS_PER_CALL = 100
_METRICS_PER_CALL = 1000


class MlflowRun:
    """A run that exists.

    Parameters
    ----------
    client : MlflowClient
        Of the tracking server.
    uri : str
        MLflow tracking URI.
    run_id, experiment_id : str
        The run, and its experiment.
    federation, registered_model : str
        Names of the federation and of the registered model.
    task : TaskHooks
        The prediction task.
    about : str
        What the run is, a sentence.
    """

    def __init__(
        self,
        client: MlflowClient,
        uri: str,
        run_id: str,
        experiment_id: str,
        federation: str,
        registered_model: str,
        task: TaskHooks,
        about: str,
    ) -> None:
        self._client = client
        self._uri = uri
        self.run_id, self.experiment_id = run_id, experiment_id
        self._federation, self._task, self._about = federation, task, about
        self._verdict = ""
        self.registered_model = registered_model

    @classmethod
    def open(cls, uri: str, event: Mapping[str, Any]) -> "MlflowRun":
        """Return the run with an event's key; make experiment and run where there are none yet."""
        if uri.startswith(_SQLITE):
            make_store(Path(uri.removeprefix(_SQLITE)))
        client = MlflowClient(uri)
        experiment = _experiment(client, uri, event["experiment"])
        matching_runs = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{event['key']}'", max_results=1)
        if matching_runs:
            run_id = matching_runs[0].info.run_id
        else:
            tags = {KEY_TAG: event["key"], "anchorage.federation": event["federation"], MLFLOW_USER: "anchorage"}
            title = event.get("name", event["federation"])  # an earlier version wrote no names, texts and datasets
            run_id = client.create_run(experiment, tags=tags, run_name=title).info.run_id
        names = (event["federation"], event["registeredModel"])
        # an earlier version wrote classes alone
        task = read_piece("task", event.get("task") or {"classification": {"classes": event["classes"]}})
        return cls(client, uri, run_id, experiment, *names, expect(task, TaskHooks), event.get("about", ""))

    def describe(self, event: Mapping[str, Any]) -> None:
        """Log tags, datasets, the parameters that are not logged yet, and the spec; the run is running again."""
        known = self._client.get_run(self.run_id).data.params
        params = [Param(k, v[:_LONGEST_PARAM]) for k, v in event["parameters"].items() if k not in known]
        for start in range(0, len(params), _PARAMS_PER_CALL):
            self._client.log_batch(self.run_id, params=params[start : start + _PARAMS_PER_CALL])
        tags = [RunTag(key, value) for key, value in event.get("tags", {}).items()]
        self._client.log_batch(self.run_id, tags=tags)
        self._log_datasets(event.get("datasets", ()))
        self._client.log_text(self.run_id, event["document"], "federation.yaml")
        self._write_results()
        self._client.update_run(self.run_id, status="RUNNING")

    def log_round(self, event: Mapping[str, Any], folder: Path) -> None:
        """Log a round's metrics and, where the event has arrays, its figures."""
        stamp, step = int(event["time"] * 1000), event["round"]
        metrics = [Metric(name, float(value), stamp, step) for name, value in event["metrics"].items()]
        for start in range(0, len(metrics), _METRICS_PER_CALL):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + _METRICS_PER_CALL])
        self._log_datasets(event.get("datasets", ()))
        for key, name in event["arrays"].items():
            if (folder / name).exists():
                array = np.load(folder / name, allow_pickle=False)
                role, _, kind = key.rpartition("-")
                place = f"{role.removeprefix('test-')}/{kind}" if role else f"rounds/{kind}-{step:06d}"
                what = (
                    f"{role.removeprefix('test-')} model, test images" if role else f"round {step}, validation images"
                )
                if kind in figures.PROJECTED:
                    what = f"{what}, {event['layer']}"
                for name, figure in self._figures_of(kind, array, f"{self._federation}, {what}"):
                    self._log_figure(figure, place.replace(kind, name))

    def _log_figure(self, figure: Figure, place: str) -> None:
        self._client.log_image(self.run_id, figures.render_image(figure), f"{FIGURES}/{place}.png")

    def _figures_of(self, kind: str, array: NDArray[Any], title: str) -> Iterator[tuple[str, Figure]]:
        """Yield the pictures of an array of a round: embeddings, or a sum of the task's tally; with their names."""
        if kind in figures.PROJECTED:
            yield kind, figures.PROJECTED[kind](array, title, self._task)
        elif kind == EMBEDDINGS:
            yield kind, figures.embeddings(array, title, self._task)
        else:
            for chart in self._task.tally_charts({kind: array}):
                yield chart.name, figures.figure_of(chart, title)

    def register(self, role: str, models: Path, known: dict[str, str], outbox: Path) -> str:
        """Register a model and return its version; one that this run registered already only gets the alias.

        Parameters
        ----------
        role : str
            ``final`` or ``best``: which model, and the alias of its version.
        models : Path
            Folder with ``model.json`` and the safetensors files that it names.
        known : dict of str to str
            Versions by digest; a new one is added.
        outbox : Path
            The outbox, which may have the model's program already.

        Raises
        ------
        AnchorageError
            The folder does not hold the model, or it cannot be exported.
        """
        described = read_inference(models / DESCRIPTION)
        _, stored = described.choose(best=role == "best")
        if stored.digest not in known:
            version = self._version_of(stored.digest) or self._log_model(role, models, stored, outbox)
            for key, value in self._tags_of(stored).items():
                self._client.set_model_version_tag(self.registered_model, version, key, value)
            known[stored.digest] = version
        version = known[stored.digest]
        self._client.set_registered_model_alias(self.registered_model, role, version)
        return version

    def log_card(self, models: Path, *, draws: bool) -> None:
        """Log the model card, where there is one: as files, metrics and, where it `draws`, figures of the run.

        Raises
        ------
        ValidationError
            The card is not of this format; its files are logged.
        """
        if (card := self._log_card(models, ())) and draws:
            self._log_figures(models, card)

    def _log_card(self, models: Path, versions: Collection[str]) -> ModelCard | None:
        """Log a card's files, in the run and in versions that were registered with another, and its metrics; return it."""
        for path in _cards(models).values():
            self._client.log_artifact(self.run_id, str(path))
            for version in versions:
                source = self._client.get_model_version(self.registered_model, version).source or ""
                self._client.log_model_artifact(source.removeprefix(_LOGGED), str(path), "artifacts")
        if not (models / CARD).is_file():
            return None
        card = ModelCard.model_validate_json((models / CARD).read_bytes())
        self._verdict = verdict(card)
        stamp = int(datetime.fromisoformat(card.ended).timestamp() * 1000)
        reference_metrics = {LABELS_ALONE: card.labels_alone, SUPERVISED_BOUND: card.supervised_bound}
        reference_metrics |= {f"{SITE_ALONE}{name}/": metrics for name, metrics in (card.sites_alone or {}).items()}
        part = card.final.assessment.part if card.final.assessment else "validation"
        metrics = [
            Metric(f"{part}/{prefix}{name}", value, stamp, card.rounds)
            for prefix, values in reference_metrics.items()
            for name, value in (values or {}).items()
        ]
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)
        return card

    def _log_figures(self, models: Path, card: ModelCard) -> None:
        """Draw what the card says of its models, and log the pictures that lie beside them."""
        for role, model in (("final", card.final), ("best", card.best)):
            if model.assessment is not None and (role == "final" or model.digest != card.final.digest):
                self._log_charts(role, model.assessment)
            if (picture := models / EXAMPLES.format(role=role)).is_file():
                self._client.log_artifact(self.run_id, str(picture), f"{FIGURES}/{role}")

    def _log_charts(self, role: str, scored: Assessment) -> None:
        title = f"{self._federation}, {role} model, {scored.part} images"
        for chart in self._task.charts(scored):
            self._log_figure(figures.figure_of(chart, title), f"{role}/{chart.name}")

    def end(self, code: str) -> None:
        """Write the scores, and close the run: finished, or failed with a code of the catalogue."""
        tags = self._write_results()
        if code:
            self._client.set_tag(self.run_id, CODE_TAG, code)
        elif CODE_TAG in tags:
            self._client.delete_tag(self.run_id, CODE_TAG)
        self._client.set_terminated(self.run_id, "FAILED" if code else "FINISHED")

    def add_card(self, models: Path, versions: Collection[str]) -> None:
        """Log a card that was completed after the run's end, and the scores with it; figures, which a completed card has no others of, only where
        the run has none.

        Raises
        ------
        ValidationError
            The card is not of this format; its files are logged.
        """
        card = self._log_card(models, versions)
        if card and not self._client.list_artifacts(self.run_id, f"{FIGURES}/final"):
            self._log_figures(models, card)
        self._write_results()

    def _write_results(self) -> Mapping[str, str]:
        """Write the card's verdict and the scores that MLflow has as an artifact, and as the description of the run unless people have edited
        that; return its tags.
        """
        run_data = self._client.get_run(self.run_id).data
        scores = headline(run_data.metrics)
        text = "\n\n".join(part for part in (self._verdict, scores, self._about) if part)
        if scores:
            self._client.log_text(self.run_id, f"# {self._federation}\n\n{text}\n", RESULTS)
        before = run_data.tags.get(MLFLOW_RUN_NOTE)
        if before is None or _digest(before) == run_data.tags.get(NOTE_TAG):
            tags = {MLFLOW_RUN_NOTE: text[:_LONGEST_TAG], NOTE_TAG: _digest(text[:_LONGEST_TAG])}
            self._client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        return dict(run_data.tags)

    def _log_datasets(self, listed: Sequence[Mapping[str, Any]]) -> None:
        """Log datasets by digests and counts; MLflow keeps one of each name and digest."""
        inputs = [
            DatasetInput(
                Dataset(
                    name=dataset["name"],
                    digest=dataset["digest"],
                    source_type="anchorage",
                    source=json.dumps({"federation": self._federation}),
                    profile=json.dumps({"images": dataset["images"]}),
                ),
                [InputTag(MLFLOW_DATASET_CONTEXT, dataset["use"])],
            )
            for dataset in listed
        ]
        if inputs:
            self._client.log_inputs(self.run_id, inputs)

    def _log_model(self, role: str, models: Path, stored: Weights, outbox: Path) -> str:
        """Log the model as a program that needs no Anchorage, with the file that decodes images, and return its version.

        Raises
        ------
        AnchorageError
            The weights are missing or damaged, or the network cannot be exported.
        """
        mlflow.set_tracking_uri(self._uri)
        params, tags = self._client.get_run(self.run_id).data.params, self._tags_of(stored)
        name = f"{role}-model"
        logged = self._client.create_logged_model(self.experiment_id, name, self.run_id, tags, params)
        status = LoggedModelStatus.FAILED
        try:
            with tempfile.TemporaryDirectory(prefix="anchorage-model-") as folder:
                packed = Path(folder) / name
                self._pack(role, models, stored, outbox, packed, logged)
                self._client.log_model_artifacts(logged.model_id, str(packed))
            status = LoggedModelStatus.READY
        finally:
            self._client.finalize_logged_model(logged.model_id, status)
        self._client.log_outputs(self.run_id, [LoggedModelOutput(logged.model_id, step=stored.round)])
        self._log_metrics_of(stored, logged.model_id)
        return str(mlflow.register_model(f"{_LOGGED}{logged.model_id}", self.registered_model, tags=tags).version)

    def _pack(self, role: str, models: Path, stored: Weights, outbox: Path, packed: Path, logged: LoggedModel) -> None:
        """Write a model's folder as MLflow has it; errors as of `_log_model`.

        `mlflow.pyfunc.log_model` would also load it and have it predict, for which it imports torch; `save_trained` has compared the program.
        """
        described = read_inference(models / DESCRIPTION)
        program, description = program_file(outbox, stored.digest), packed.with_name(DESCRIPTION)
        if not program.is_file():
            program = packed.with_name(program.name)
            import_large("anchorage.learning.exporting")  # torch is only needed here
            from anchorage.learning.exporting import save_trained

            save_trained(models, role, program)
        description.write_text(description_of(models, role))
        code = {"decoding": decoding.__file__, "intensity": intensity.__file__}
        artifact_files = {"program": program, "description": description, **code, **_cards(models)}
        artifact_files["weights"] = models / stored.file  # which other runs may start from, without running anything
        place, model_id = logged.artifact_location, logged.model_id
        mlflow.pyfunc.save_model(
            path=packed,
            mlflow_model=Model(artifact_path=place, run_id=self.run_id, model_id=model_id, model_uuid=model_id),
            python_model=str(_SERVING if described.volume is None else _SERVING_VOLUMES),
            artifacts={name: str(path) for name, path in artifact_files.items()},
            signature=_signature(described),
            input_example=_example(described),
            pip_requirements=requirements(volumes=described.volume is not None),
        )

    def _log_metrics_of(self, stored: Weights, model: str) -> None:
        """Log a model's scores with it; those of its round, which the run has already, at the same time as there."""
        stamp = int(stored.time * 1000)
        metrics = [
            Metric(key, value, stamp, stored.round, model_id=model)
            for key, value in stored.metrics.items()
            if value is not None
        ]
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics)

    def _version_of(self, digest: str) -> str:
        """Return the version that this run registered of a model, as before the sender was killed; empty where there is none."""
        for version in self._client.search_model_versions(f"run_id = '{self.run_id}'"):
            if version.name != self.registered_model or version.status != "READY":
                continue
            tags, source = version.tags, version.source or ""
            if DIGEST_TAG not in tags and source.startswith(_LOGGED):  # a version gets them a moment after it was made
                tags = self._client.get_logged_model(source.removeprefix(_LOGGED)).tags
            if tags.get(DIGEST_TAG) == digest:
                return str(version.version)
        return ""

    def _tags_of(self, stored: Weights) -> dict[str, str]:
        return {
            "anchorage.federation": self._federation,
            "anchorage.round": str(stored.round),
            DIGEST_TAG: stored.digest,
        }


def _cards(models: Path) -> dict[str, Path]:
    """Return the files of the model card that lie beside the models, by their names as artifacts."""
    named = {"card": models / CARD, "card_text": models / CARD_TEXT}
    return {name: path for name, path in named.items() if path.is_file()}


def requirements(*, volumes: bool = False) -> list[str]:
    """Return what a registered model needs, as far as it is installed here: a program of torch is read by the same or a later version, and volumes
    by Anchorage itself.
    """
    bounds = {"mlflow": "4", "numpy": "3", "pandas": "4", "pillow": "", "torch": "3"}
    versions = {name: metadata.version(name).split("+")[0] for name in bounds}
    least = {name: number if name == "torch" else number.split(".")[0] for name, number in versions.items()}
    needed = [f"{name}>={least[name]}" + (f",<{bound}" if bound else "") for name, bound in bounds.items()]
    return [*needed, f"anchorage[clinical,learning]=={metadata.version('anchorage')}"] if volumes else needed


def _signature(described: Inference) -> ModelSignature:
    task = described.task
    maps = task.output_kind is OutputKind.MAPS
    numbers = Object([Property(name, DataType.double) for name in task.outputs[1 if maps else 0 :]])
    of_maps = "area" if described.volume is None else "millilitres"
    named = {OutputKind.VALUES: VALUES, OutputKind.MAPS: of_maps}.get(task.output_kind, PROBABILITIES)
    columns: list[ColSpec | TensorSpec] = [ColSpec(numbers, named)]
    if maps:
        columns.append(ColSpec(DataType.string, "mask"))
    if task.output_kind is OutputKind.EXCLUSIVE:
        columns.insert(0, ColSpec(DataType.string, "class"))
    output_schema = Schema(columns)
    return ModelSignature(Schema([ColSpec(AnyType(), IMAGE)]), output_schema)  # type: ignore[no-untyped-call]


def _example(described: Inference) -> DataFrame:
    """Return a black image, or a small volume, as base64 text, which every kind of request can carry."""
    content = BytesIO()
    if described.volume is not None:
        return DataFrame({IMAGE: [base64.b64encode(_small_volume()).decode()]})
    side = (described.image_size, described.image_size)
    Image.new("L" if described.channels == 1 else "RGB", side).save(content, "png")
    return DataFrame({IMAGE: [base64.b64encode(content.getvalue()).decode()]})


def _small_volume() -> bytes:
    """Return a NIfTI file of 8 × 8 × 8 voxels that get brighter to the right."""
    import nibabel  # where volumes are read it is there

    values = np.broadcast_to(np.arange(8, dtype=np.uint8)[:, None, None], (8, 8, 8))
    content: bytes = nibabel.Nifti1Image(values, np.eye(4)).to_bytes()
    return content


def _experiment(client: MlflowClient, uri: str, name: str) -> str:
    """Return the id of an experiment, made where there is none, described as model training; an SQLite file's artifacts go beside the file."""
    tags = {**KIND, MLFLOW_RUN_NOTE: EXPERIMENT}
    experiment: Experiment | None = client.get_experiment_by_name(name)
    if experiment is not None:
        for tag in tags.keys() - experiment.tags.keys():
            client.set_experiment_tag(experiment.experiment_id, tag, tags[tag])
        return str(experiment.experiment_id)
    location = None
    if uri.startswith(_SQLITE):
        location = (Path(uri.removeprefix(_SQLITE)).absolute().parent / "mlartifacts").as_uri()
    try:
        return str(client.create_experiment(name, artifact_location=location, tags=tags))
    except MlflowException:  # another federation's sender made it meanwhile
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise
        return str(experiment.experiment_id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
