"""From the documents of a study to what the engine and the silos need."""

from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.methods import resolve
from anchorage.rounds.interfaces import ServerLearner
from anchorage.rounds.settings import RoundSettings
from anchorage.spec.data import DataSection
from anchorage.spec.files import Study
from anchorage.spec.model import ModelSpec
from anchorage.spec.run import RunDescription

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.data import ImageSet


def describe_run(study: Study, learner: ServerLearner) -> RunDescription:
    """Return what every silo is told."""
    spec = study.federation.spec
    return RunDescription(
        federation=study.federation.metadata.name,
        seed=spec.seed,
        model=spec.model,
        method=resolve(spec.method),
        down=learner.down.to_json(),
        up=learner.up.to_json(),
        rounds=spec.rounds,
        mode=spec.protocol.mode,
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
    )


def read_images(section: DataSection, data_root: Path, model: ModelSpec, seed: int) -> "ImageSet":
    """Read a data section at the model's size and number of channels.

    Raises
    ------
    AnchorageError
        The images cannot be used (12xx).
    """
    from anchorage.data import read

    images, _ = read(
        section,
        data_root,
        image_size=model.image_size,
        channels=model.channels,
        num_classes=model.num_classes,
        seed=seed,
    )
    return images
