"""The model card of a finished run, from its documents, records and scores (`anchorage.api.model_card`)."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage import __version__
from anchorage.api.card_text import markdown, scored_silos
from anchorage.api.federation import Federation, FederationSpec, Silo
from anchorage.api.files import Study, dump_yaml
from anchorage.api.model_card import (
    CARD,
    CARD_TEXT,
    Assessment,
    DocumentDigest,
    ModelCard,
    Sent,
    ServerImages,
    SiloPart,
    Traffic,
    TrainedModel,
)
from anchorage.api.piece import AuxiliaryArray
from anchorage.api.run import RunDescription
from anchorage.api.status import timestamp
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.methods.preset import auxiliary_arrays
from anchorage.methods.registry import PRESETS
from anchorage.transport.files import write_atomically

FEW_IMAGES = 30
"""Images of a class below which its scores are called uncertain."""

SIMULATED = "It was trained in a simulation, on images that were all in one place."
LAST_LIMITS = ("It is no medical device. Nobody checked labels, bias or consent as part of the run.",)


def make_card(
    study: Study,
    run: RunDescription,
    history: Sequence[RoundRecord],
    images: Mapping[str, Mapping[str, Any]],
    *,
    final: TrainedModel,
    best: TrainedModel,
    initial: str = "",
    classifier_trained: bool,
    simulated: bool = False,
) -> ModelCard:
    """Return the card.

    Parameters
    ----------
    study : Study
        The documents.
    run : RunDescription
        The run.
    history : sequence of RoundRecord
        Every committed round, at least one.
    images : mapping of str to mapping
        Fingerprints of the server's images (`anchorage.learning.data.fingerprints.Fingerprint`), by part.
    final, best : TrainedModel
        The two models.
    initial : str
        `anchorage.methods.pretrained.initial_source`.
    classifier_trained : bool
        Whether anything trained the classifier; a self-supervised method trains the encoder alone.
    simulated : bool
        Whether no hospital took part.
    """
    spec, first, last = study.federation.spec, history[0], history[-1]
    silos = _silos(study, history)
    preset = PRESETS.get(run.method.name)
    return ModelCard(
        anchorage=__version__,
        federation=run.federation,
        task=run.model.task.name,
        network=run.model.network,
        image_size=run.model.image_size,
        channels=run.model.channels,
        initial=initial,
        method=run.method.name,
        source=preset.source if preset else "",
        warm_up=tuple(stage.method.name for stage in run.warm_up),
        seed=run.seed,
        mode=run.mode,
        rounds=last.round,
        begun=timestamp(first.time),
        ended=timestamp(last.time),
        seconds=max(0.0, last.time - first.time),
        documents=_documents(study),
        images=_images(spec, images),
        silos=silos,
        traffic=_traffic(run, history),
        final=final,
        best=best,
        simulated=simulated,
        limits=(
            *((SIMULATED,) if simulated else ()),
            *_limits(final.assessment, silos, classifier_trained),
            *_leakage(spec),
            *LAST_LIMITS,
        ),
    )


def write_card(folder: Path, card: ModelCard) -> None:
    """Write ``model-card.json`` and ``model-card.md``.

    Raises
    ------
    OSError
        They cannot be written.
    """
    write_atomically(folder / CARD, card.model_dump_json(by_alias=True, indent=2).encode())
    write_atomically(folder / CARD_TEXT, markdown(card).encode())


def read_images(state: Path) -> dict[str, dict[str, Any]]:
    """Return the fingerprints of the server's images that a state folder holds, by part.

    Raises
    ------
    OSError, ValueError
        One cannot be read.
    """
    return {path.stem.removeprefix("images-"): json.loads(path.read_bytes()) for path in state.glob("images-*.json")}


def _documents(study: Study) -> tuple[DocumentDigest, ...]:
    documents: tuple[Federation | Silo, ...] = (study.federation, *study.silos)
    texts = [(document, dump_yaml([document]).encode()) for document in documents]
    return tuple(
        DocumentDigest(kind=document.kind, name=document.metadata.name, digest=hashlib.sha256(text).hexdigest())
        for document, text in texts
    )


def _images(spec: FederationSpec, images: Mapping[str, Mapping[str, Any]]) -> tuple[ServerImages, ...]:
    """Return the server's parts of which a fingerprint is there."""
    shown = ("digest", "classes", "unlabelled")
    return tuple(
        ServerImages(part=part, format=section.format, **{name: images[part][name] for name in shown})
        for part, section in spec.server_data.items()
        if part in images
    )


def _traffic(run: RunDescription, history: Sequence[RoundRecord]) -> Traffic:
    methods = [*(stage.method for stage in run.warm_up), run.method]
    up, down = ([array for method in methods for array in auxiliary_arrays(method, up=way)] for way in (True, False))
    return Traffic(
        bytes_up=sum(record.bytes_up for record in history),
        bytes_down=sum(record.bytes_down for record in history),
        up=_sent(up),
        down=_sent(down),
    )


def _silos(study: Study, history: Sequence[RoundRecord]) -> tuple[SiloPart, ...]:
    """Return what is known of every silo; where its document is not here, as in a cluster, its labels are those that it said itself."""
    parts: dict[str, list[SiloRecord]] = {silo.metadata.name: [] for silo in study.silos}
    for record in history:
        for silo in record.silos:
            parts.setdefault(silo.name, []).append(silo)
    said = {name: next((part.labels for part in reversed(of) if part.labels), "") for name, of in parts.items()}
    labels: dict[str, str] = {**said, **{silo.metadata.name: silo.spec.labels for silo in study.silos}}
    return tuple(_silo(name, labels[name], records) for name, records in parts.items())


def _silo(name: str, labels: str, records: Sequence[SiloRecord]) -> SiloPart:
    counted = [record for record in records if record.state == "Counted"]
    latest = counted[-1] if counted else None
    return SiloPart(
        name=name,
        labels=labels,
        rounds=len(counted),
        weight=min(1.0, math.fsum(record.weight for record in counted) / len(counted)) if counted else 0.0,
        samples={use: int(count) for use, count in latest.samples.items()} if latest else {},
        metrics={name: value for name, value in latest.metrics.items() if math.isfinite(value)} if latest else {},
        digest=next((record.fingerprint for record in reversed(records) if record.fingerprint), ""),
        failures=sum(record.state in ("Failed", "Late") for record in records),
    )


def _sent(arrays: Sequence[AuxiliaryArray]) -> tuple[Sent, ...]:
    unique = {array.name: array for array in arrays}
    return tuple(Sent(name=array.name, shape=array.shape, meaning=array.meaning) for array in unique.values())


def _limits(assessment: Assessment | None, silos: Sequence[SiloPart], classifier_trained: bool) -> list[str]:
    """Return what is known of a model's limits, a sentence each."""
    found = []
    if not classifier_trained:
        found.append(
            "Nothing trained its classifier, so its own predictions mean nothing; scores are of a probe on the server's labels."
        )
    if assessment is None:
        known = "only the silos scored it" if scored_silos(silos) else "how good it is is unknown"
        found.append(f"It was not scored at the server: {known}.")
    else:
        counts = {scores.name: scores.images for scores in assessment.classes}
        if missing := ", ".join(name for name, images in counts.items() if not images):
            found.append(
                f"No image of these classes was scored, so how well they are recognised is unknown: {missing}."
            )
        if few := ", ".join(f"{name} ({images})" for name, images in counts.items() if 0 < images < FEW_IMAGES):
            found.append(
                f"These classes were scored on fewer than {FEW_IMAGES} images, so their scores are uncertain: {few}."
            )
        if assessment.part == "validation":
            found.append(
                "It was scored on the validation images, which also chose the best model: scores may be too good."
            )
        found.append("Scores are of the server's images. Scanners, patients and prevalence elsewhere differ.")
        found.append(
            "Intervals tell how scores vary with the images drawn, taken as independent; several images of a patient, and "
            "another seed of the training, add to that."
        )
    if idle := ", ".join(silo.name for silo in silos if not silo.rounds):
        found.append(f"No update of these silos ever counted, so it learnt nothing from their images: {idle}.")
    return found


def _leakage(spec: FederationSpec) -> Iterator[str]:
    if spec.evaluation is not None and spec.evaluation.on_leakage == "Allow":
        yield "Images may have been trained on and scored, too (spec.evaluation.onLeakage: Allow): scores may be too good."
