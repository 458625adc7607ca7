"""What a finished run leaves for others: the final and the best model as plain safetensors files, what they are, and their card."""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.files import Study
from anchorage.api.inference import DESCRIPTION, describe, head_of
from anchorage.api.method import ResolvedMethod
from anchorage.api.model_card import EXAMPLES, TrainedModel, thresholds_of
from anchorage.api.regular_files import read_regular
from anchorage.api.run import RunDescription
from anchorage.api.status import StoredModel, metrics_of
from anchorage.engine.interfaces import Checkpoint, ServerLearner
from anchorage.engine.store import RoundStore
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.records import record_to_json
from anchorage.methods.model_card import make_card, write_card
from anchorage.transport.files import sync, write_atomically
from anchorage.transport.tensors.safetensors_file import write_safetensors


def write_models(
    folder: Path,
    study: Study,
    run: RunDescription,
    store: RoundStore,
    learner: ServerLearner,
    images: Mapping[str, Mapping[str, Any]],
    *,
    initial: str,
    simulated: bool = False,
) -> tuple[StoredModel, StoredModel]:
    """Write the models as `write_results` does, score both in full, and write their card beside them.

    Parameters
    ----------
    folder, run, store
        As `write_results` takes them.
    study : Study
        The documents.
    learner : ServerLearner
        Of the main method.
    images, initial, simulated
        As `anchorage.methods.model_card.make_card` takes them.

    Raises
    ------
    AnchorageError
        As `write_results`, or a model's outputs are not finite.
    """
    final, best = stored = write_results(folder, run, store)
    trained_models: list[TrainedModel] = []
    for role, model, read in zip(("final", "best"), stored, (store.latest, store.best), strict=True):
        if trained_models and best.digest == final.digest:
            assessment = trained_models[0].assessment
        else:
            checkpoint = _present(read)
            assessment = learner.assess(checkpoint.model, checkpoint.record.round)
            _write_examples(folder / EXAMPLES.format(role=role), learner.examples(checkpoint.model, model.round))
        name = Path(model.path).name
        trained_models.append(TrainedModel(file=name, digest=model.digest, round=model.round, assessment=assessment))
    with storage_errors("write the model card", folder):
        _add_thresholds(folder, dict(zip(("final", "best"), trained_models, strict=True)))
        card = make_card(
            study,
            run,
            store.history(),
            images,
            final=trained_models[0],
            best=trained_models[1],
            classifier_trained=_trains_classifier(run.method),
            initial=initial,
            simulated=simulated,
        )
        write_card(folder, card)
    return final, best


def write_results(folder: Path, run: RunDescription, store: RoundStore) -> tuple[StoredModel, StoredModel]:
    """Write ``final.safetensors``, ``best.safetensors`` and ``model.json``, and return where the two models lie.

    Parameters
    ----------
    folder : Path
        Made when missing.
    run : RunDescription
        The run.
    store : RoundStore
        Holds at least one committed round.

    Raises
    ------
    AnchorageError
        The disk is full or not writable, or a checkpoint is damaged.
    """
    with storage_errors("write the final model", folder):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        written: dict[str, Any] = {}
        models: list[StoredModel] = []
        last = store.history()[-1]
        for name, read in (("final", store.latest), ("best", store.best)):
            checkpoint = _present(read)
            path = folder / f"{name}.safetensors"
            digest = _write_model(path, checkpoint, run.federation)
            record = record_to_json(checkpoint.record)
            known = {key: record[key] for key in ("round", "time", "metrics")}
            written[name] = {"file": path.name, "digest": digest, **known}
            test = last.test.get(name, {})
            written[name] |= {"test": dict(test)} if test else {}
            stored = StoredModel(path=str(path), digest=digest, round=checkpoint.record.round, metrics=metrics_of(test))
            models.append(stored)
            head = head_of({t.name: t.shape for t in checkpoint.model.layout.of_network().tensors})
        values = describe(run.model, run.federation, classifier_trained=_trains_classifier(run.method))
        values |= {"head": head.model_dump(mode="json", by_alias=True)} if head else {}
        write_atomically(folder / DESCRIPTION, json.dumps({**values, **written}, indent=2).encode())
        sync(folder)
    return models[0], models[1]


def _write_examples(file: Path, picture: NDArray[np.uint8] | None) -> None:
    """Write a picture of validation images with what is true and predicted; None: what lies there of a run before goes."""
    if picture is None:
        file.unlink(missing_ok=True)
        return
    from PIL import Image

    content = BytesIO()
    Image.fromarray(picture).save(content, "png")
    with storage_errors("write examples", file):
        write_atomically(file, content.getvalue())


def _add_thresholds(folder: Path, models: Mapping[str, TrainedModel]) -> None:
    """Write into ``model.json`` from which probabilities on each model's findings are present, where its task has such."""
    role_thresholds = {role: thresholds_of(model.assessment) for role, model in models.items()}
    if not any(role_thresholds.values()):
        return
    values = json.loads(read_regular(folder / DESCRIPTION).decode())
    for role, thresholds in role_thresholds.items():
        values[role]["thresholds"] = thresholds
    write_atomically(folder / DESCRIPTION, json.dumps(values, indent=2).encode())
    sync(folder)


def _trains_classifier(method: ResolvedMethod) -> bool:
    """Return what `TrainingMethod.trains_classifier` does, without torch."""
    leaves, trains = method.self_supervised, method.server_training
    return not getattr(leaves, "leaves_classifier", False) or bool(getattr(trains, "trains", False))


def _present(read: Callable[[], Checkpoint | None]) -> Checkpoint:
    """Return what a run that has ended has."""
    checkpoint = read()
    assert checkpoint is not None, "a run that has ended has committed round 0"
    return checkpoint


def _write_model(path: Path, checkpoint: Checkpoint, federation: str) -> str:
    """Write the network, without what a method has travel with it, and return its digest."""
    model = checkpoint.model.of_network()
    metadata = {"format": "pt", "federation": federation, "round": str(checkpoint.record.round), "digest": model.digest}
    write_safetensors(path, model, metadata=metadata, sync=True)
    return model.digest
