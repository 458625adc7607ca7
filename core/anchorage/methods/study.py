"""From the documents of a study to what the engine and the silos need."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.api.changes import digest_of_study
from anchorage.api.data import DataSection
from anchorage.api.federation import FederationSpec
from anchorage.api.files import Study
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.run import HeldOut, RunDescription, StageDescription
from anchorage.api.stages import stage_method
from anchorage.engine.interfaces import ServerLearner
from anchorage.engine.settings import RoundSettings
from anchorage.engine.strategy import task_layout
from anchorage.methods.resolution import resolve
from anchorage.transport.bounds import MOST_IMAGES

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.learning.data import ImageSet
    from anchorage.learning.data.picture_store import PictureStore


@dataclass(frozen=True)
class Part:
    """A stage's method, and the rounds that it is for: those after `after`, up to `last`."""

    method: ResolvedMethod
    after: int
    last: int


def parts_of(spec: FederationSpec) -> tuple[Part, ...]:
    """Return the stages of the warm-up and the main method, in their order."""
    warm_up = [(resolve(stage_method(stage)), stage.rounds) for stage in spec.warm_up]
    ends = [*accumulate((rounds for _, rounds in warm_up), initial=0), spec.rounds]
    methods = [*(method for method, _ in warm_up), resolve(spec.method)]
    return tuple(Part(method, *span) for method, span in zip(methods, pairwise(ends), strict=True))


def describe_run(
    study: Study,
    learner: ServerLearner,
    warm_up: Sequence[ServerLearner] = (),
    *,
    held_out: HeldOut | None = None,
    data_key: bytes = bytes(32),
) -> RunDescription:
    """Return what every silo is told.

    Parameters
    ----------
    study : Study
        The documents.
    learner : ServerLearner
        Of the main method.
    warm_up : sequence of ServerLearner
        Of the stages before it.
    held_out : HeldOut or None
        Images that no silo may train on.
    data_key : bytes
        32 bytes, with which digests of images are keyed.
    """
    spec = study.federation.spec
    method = resolve(spec.method)
    stages = (
        StageDescription(
            method=part.method, down=task_layout(own.down, part.method).to_json(), up=own.up.to_json(), last=part.last
        )
        for part, own in zip(parts_of(spec)[:-1], warm_up, strict=True)
    )
    return RunDescription(
        federation=study.federation.metadata.name,
        seed=spec.seed,
        model=spec.model_description,
        method=method,
        down=task_layout(learner.down, method).to_json(),
        up=learner.up.to_json(),
        rounds=spec.rounds,
        mode=spec.protocol.mode,
        secure_aggregation=spec.protocol.secure_aggregation,
        model_encoding=spec.protocol.model_encoding,
        warm_up=tuple(stages),
        held_out=held_out,
        silo_percent=spec.evaluation.silo_percent if spec.evaluation else 0,
        data_key=data_key.hex(),
    )


def round_settings(study: Study) -> RoundSettings:
    """Return the part of the documents that the engine follows."""
    spec = study.federation.spec
    return RoundSettings(
        rounds=spec.rounds,
        seed=spec.seed,
        silos=tuple(silo.metadata.name for silo in study.silos),
        min_silos=spec.protocol.min_silos,
        silos_per_round=spec.protocol.silos_per_round,
        round_deadline_seconds=spec.protocol.round_deadline_seconds,
        active_deadline_seconds=spec.active_deadline_seconds,
        evaluate_every=spec.evaluation.every_rounds if spec.evaluation else 1,
        average_decay=float(decay) if spec.evaluation and (decay := spec.evaluation.average_decay) else None,
        fractional_bits=secure.fractional_bits if (secure := spec.protocol.secure_aggregation) else None,
        model_coding=spec.protocol.model_encoding,
        most_images=spec.protocol.maximum_images or MOST_IMAGES,
        documents=digest_of_study(study.federation, (), resolve),
        held_out_task=spec.task if spec.evaluation and spec.evaluation.silo_percent else None,
        embeddings=spec.embeddings.projection if spec.embeddings else None,
    )


def read_images(
    section: DataSection,
    data_root: Path,
    model: ModelDescription,
    seed: int,
    *,
    labelled: bool = True,
    store: "PictureStore | None" = None,
) -> "ImageSet":
    """Read a data section at the model's size and number of channels; `labelled`: its labels are wanted; `store`: for many images.

    Raises
    ------
    AnchorageError
        The images cannot be used (12xx).
    """
    from anchorage.learning.data import read

    images, _ = read(section, data_root, model, seed, labelled=labelled, store=store)
    return images
