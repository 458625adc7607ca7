"""The model card of a finished run, from its documents, records and scores (`anchorage.api.model_card`)."""

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from anchorage import __version__
from anchorage.api.card_text import markdown, scored_silos
from anchorage.api.data import DataFormat
from anchorage.api.fact import Fact
from anchorage.api.federation import Federation, FederationSpec, Silo
from anchorage.api.files import Study, dump_yaml
from anchorage.api.method import ResolvedMethod
from anchorage.api.metric_names import GUESSES, GUESSES_CHOSEN
from anchorage.api.metrics import metric_order
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
from anchorage.api.piece import PIECES, AuxiliaryArray
from anchorage.api.regular_files import read_regular
from anchorage.api.run import RunDescription
from anchorage.api.silo_state import SiloState
from anchorage.api.status import timestamp
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.methods.alone import measured_alone
from anchorage.methods.checks import WITHOUT_LABELS
from anchorage.methods.preset import auxiliary_arrays
from anchorage.methods.registry import PRESETS
from anchorage.pieces.server_training.recipes import SEVERAL
from anchorage.pieces.weighting.fedavg_semi import TwoHalves
from anchorage.transport.files import write_atomically

PATIENT_DIGEST_BYTES = 8
"""Bytes of a keyed digest in `anchorage.api.run.HeldOut`."""
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
    silos = _silos(study, run, history)
    preset, weighting = PRESETS.get(run.method.name), run.method.weighting
    return ModelCard(
        anchorage=__version__,
        federation=run.federation,
        task=run.model.task.name,
        network=run.model.network,
        image_size=run.model.image_size,
        volume=run.model.volume,
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
        final=_with_validation(final, history),
        best=_with_validation(best, history),
        simulated=simulated,
        measurable=measured_alone(spec),
        unlabelled=_unlabelled_use(run),
        labelled_share=float(weighting.labelled_share) if isinstance(weighting, TwoHalves) else None,
        scored_patients=_scored_patients(spec, run),
        **_choice(last.metrics),
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
    return {path.stem.removeprefix("images-"): json.loads(read_regular(path)) for path in state.glob("images-*.json")}


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
    up, down = (
        [array for method in _methods(run) for array in auxiliary_arrays(method, up=way)] for way in (True, False)
    )
    return Traffic(
        bytes_up=sum(record.bytes_up for record in history),
        bytes_down=sum(record.bytes_down for record in history),
        up=_sent_arrays(up),
        down=_sent_arrays(down),
    )


def _silos(study: Study, run: RunDescription, history: Sequence[RoundRecord]) -> tuple[SiloPart, ...]:
    """Return what is known of every silo; where its document is not here, as in a cluster, its labels are those that it said itself."""
    parts: dict[str, list[SiloRecord]] = {silo.metadata.name: [] for silo in study.silos}
    for record in history:
        for silo in record.silos:
            parts.setdefault(silo.name, []).append(silo)
    reported_labels = {
        name: next((part.labels for part in reversed(of) if part.labels), "") for name, of in parts.items()
    }
    labels: dict[str, str] = {**reported_labels, **{silo.metadata.name: silo.spec.labels for silo in study.silos}}
    missed = _count_missed(study, run, history)
    return tuple(_silo(name, labels[name], records, missed.get(name)) for name, records in parts.items())


def _count_missed(study: Study, run: RunDescription, history: Sequence[RoundRecord]) -> Mapping[str, int]:
    """Return for every silo in how many rounds it was to take part and did not; empty where rounds do not wait for silos.

    A silo that is away is not asked any more: where every silo takes part in every round, it misses those rounds, too, from its
    first one on (of one with a document, from the first round on) until it is taken out.
    """
    if run.mode == "Asynchronous":
        return {}
    rounds = [{silo.name: silo.state for silo in record.silos} for record in history if record.round > 0]
    first_rounds = {silo.metadata.name: 0 for silo in study.silos}
    for index, states in enumerate(rounds):
        for name in states:
            first_rounds.setdefault(name, index)
    weightings = [method.weighting for method in _methods(run)]
    drawn = any(isinstance(each, WeightingEngineHooks) and each.repeats for each in weightings)
    everybody = study.federation.spec.protocol.silos_per_round is None and not drawn
    missed_rounds = {}
    for name, first in first_rounds.items():
        silo_states = [states.get(name, SiloState.ABSENT if everybody else "") for states in rounds[first:]]
        until = silo_states.index(SiloState.REMOVED) if SiloState.REMOVED in silo_states else len(silo_states)
        missed_rounds[name] = sum(
            state in (SiloState.FAILED, SiloState.LATE, SiloState.ABSENT) for state in silo_states[:until]
        )
    return missed_rounds


def _silo(name: str, labels: str, records: Sequence[SiloRecord], missed: int | None) -> SiloPart:
    counted = [record for record in records if record.state == SiloState.COUNTED]
    latest = counted[-1] if counted else None
    answer = latest or next((record for record in reversed(records) if record.samples), None)
    return SiloPart(
        name=name,
        labels=labels,
        rounds=len(counted),
        weight=min(1.0, math.fsum(record.weight for record in counted) / len(counted)) if counted else 0.0,
        samples={use: int(count) for use, count in answer.samples.items()} if answer else {},
        metrics={name: value for name, value in latest.metrics.items() if math.isfinite(value)} if latest else {},
        digest=next((record.fingerprint for record in reversed(records) if record.fingerprint), ""),
        failures=sum(record.state in (SiloState.FAILED, SiloState.LATE) for record in records),
        last_weight=min(1.0, latest.weight) if latest else None,
        missed=missed,
    )


def _with_validation(model: TrainedModel, history: Sequence[RoundRecord]) -> TrainedModel:
    """Return the model with the scores of its round that the best one is chosen by."""
    metrics = next((record.metrics for record in history if record.round == model.round), {})
    scores = {name: metrics[name] for name in metric_order() if math.isfinite(metrics.get(name, math.nan))}
    return model.model_copy(update={"validation": scores})


def _choice(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return what a round's server chose its classifier from, as fields of a card."""
    recipe_scores = {
        recipe.name: metrics[GUESSES + recipe.name] for recipe in SEVERAL if GUESSES + recipe.name in metrics
    }
    return {"chosen_from": recipe_scores, "chosen": SEVERAL[int(metrics[GUESSES_CHOSEN])].name} if recipe_scores else {}


def _unlabelled_use(run: RunDescription) -> Literal["Unused", "PseudoLabelled", "Used"]:
    """Return what the methods of a run make of images without labels."""
    if Fact.PSEUDO_LABELS in run.method.facts():
        return "PseudoLabelled"
    learning = WITHOUT_LABELS | {Fact.LABELS_UNNEEDED}
    return "Used" if any(method.facts() & learning for method in _methods(run)) else "Unused"


def _methods(run: RunDescription) -> list[ResolvedMethod]:
    return [*(stage.method for stage in run.warm_up), run.method]


def _scored_patients(spec: FederationSpec, run: RunDescription) -> int | None:
    """Return how many patients or lesions silos were told of; None where nothing is scored, or the images are a demonstration's."""
    scored = [section for part, section in spec.server_data.items() if part != "anchors"]
    readers = [PIECES["reader", section.format] for section in scored]
    if run.held_out is None or not any(issubclass(reader, DataFormat) and reader.needs_claim for reader in readers):
        return None
    return len(base64.b64decode(run.held_out.groups)) // PATIENT_DIGEST_BYTES


def _sent_arrays(arrays: Sequence[AuxiliaryArray]) -> tuple[Sent, ...]:
    unique = {array.name: array for array in arrays}
    return tuple(Sent(name=array.name, shape=array.shape, meaning=array.meaning) for array in unique.values())


def _limits(assessment: Assessment | None, silos: Sequence[SiloPart], classifier_trained: bool) -> list[str]:
    """Return what is known of a model's limits, a sentence each."""
    limits = []
    if not classifier_trained:
        limits.append(
            "Nothing trained its classifier, so its own predictions mean nothing; scores are of a probe on the server's labels."
        )
    if assessment is None:
        known = "only the silos scored it" if scored_silos(silos) else "how good it is is unknown"
        limits.append(f"It was not scored at the server: {known}.")
    else:
        counts = {scores.name: scores.images for scores in assessment.classes}
        counts |= {scores.name: scores.positives for scores in assessment.findings}
        kind = "findings" if assessment.findings else "classes"
        if missing := ", ".join(name for name, images in counts.items() if not images):
            limits.append(
                f"No image of these {kind} was scored, so how well they are recognised is unknown: {missing}."
            )
        if few := ", ".join(f"{name} ({images})" for name, images in counts.items() if 0 < images < FEW_IMAGES):
            limits.append(
                f"These {kind} were scored on fewer than {FEW_IMAGES} images, so their scores are uncertain: {few}."
            )
        if assessment.part == "validation":
            limits.append(
                "It was scored on the validation images, which also chose the best model: scores may be too good."
            )
        limits.append("Scores are of the server's images. Scanners, patients and prevalence elsewhere differ.")
        if assessment.grid == "Network":
            limits.append(
                "Masks were compared on the network's grid, as the files of the masks could not be read again."
            )
        drawn = "images drawn, taken as independent; several images of a patient, and another seed of the training, add"
        if assessment.findings or assessment.grid:
            drawn = "patients drawn; another seed of the training adds"
        limits.append(f"Intervals tell how scores vary with the {drawn} to that.")
    if idle := ", ".join(silo.name for silo in silos if not silo.rounds):
        limits.append(f"No update of these silos ever counted, so it learnt nothing from their images: {idle}.")
    return limits


def _leakage(spec: FederationSpec) -> Iterator[str]:
    if spec.evaluation is not None and spec.evaluation.on_leakage == "Allow":
        yield "Images may have been trained on and scored, too (spec.evaluation.onLeakage: Allow): scores may be too good."
