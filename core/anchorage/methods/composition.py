"""What the documents of a study make of a run: stages with their strategies and learners, what silos are told, and the engine that plays them.

Server, simulation and forecast put a run together here; they differ in link, store, clock and where images come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.api.changes import Fields, digest_of_study, frozen_fields
from anchorage.api.federation import FederationSpec, SecureAggregation
from anchorage.api.files import Study
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.run import HeldOut, RunDescription, StageDescription
from anchorage.api.stages import stage_method, stage_model
from anchorage.engine import engine_of
from anchorage.engine.engine import Engine
from anchorage.engine.events import Observer
from anchorage.engine.interfaces import ServerLearner
from anchorage.engine.settings import RoundSettings
from anchorage.engine.stages import Stage
from anchorage.engine.store import Identity, RoundStore
from anchorage.engine.strategy import Strategy, task_layout
from anchorage.methods.resolution import resolve
from anchorage.transport.bounds import MOST_IMAGES
from anchorage.transport.exchange import Exchange
from anchorage.transport.link import Clock

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.learning.data import ImageSet


@dataclass(frozen=True)
class Part:
    """A stage's model and method, and the rounds that it is for: those after `after`, up to `last`."""

    model: ModelDescription
    method: ResolvedMethod
    after: int
    last: int


def parts_of(spec: FederationSpec) -> tuple[Part, ...]:
    """Return the stages of the warm-up and the main method, in their order."""
    warm_up = [(resolve(stage_method(stage), spec.task), stage.rounds) for stage in spec.warm_up]
    ends = [*accumulate((rounds for _, rounds in warm_up), initial=0), spec.rounds]
    methods = [*(method for method, _ in warm_up), resolve(spec.method, spec.task)]
    model = spec.model_description
    models = [stage_model(model, method) if warm_up else model for method in methods]
    return tuple(
        Part(*each, *span) for each, span in zip(zip(models, methods, strict=True), pairwise(ends), strict=True)
    )


@dataclass(frozen=True)
class Composition:
    """A run, put together from its documents."""

    study: Study
    """The documents."""
    learners: Sequence[ServerLearner]
    """What happens at the server in each stage, the main method's last."""

    def describe(self, held_out: HeldOut | None = None, data_key: bytes = bytes(32)) -> RunDescription:
        """Return what every silo is told; parameters as of `describe_run`."""
        return describe_run(self.study, self.learners[-1], self.learners[:-1], held_out=held_out, data_key=data_key)

    def frozen(self) -> Fields:
        """Return what may not change of the documents once training has begun."""
        return frozen_fields(self.study.federation, resolve)

    def identity(self, documents: Fields) -> Identity:
        """Return whose checkpoints the run's are, where `documents` is what may not change of them."""
        ends = tuple(part.last for part in parts_of(self.study.federation.spec)[:-1])
        return Identity(documents, tuple(learner.down for learner in self.learners), ends)

    def engine(
        self,
        settings: RoundSettings,
        *,
        link: Exchange,
        store: RoundStore,
        clock: Clock,
        observer: Observer,
        started: float | None = None,
    ) -> Engine:
        """Return what plays the rounds that are left.

        Parameters
        ----------
        settings : RoundSettings
            The documents' settings of rounds, with what this run has of its own.
        link, store, clock, observer, started
            As of `Engine`.
        """
        spec = self.study.federation.spec
        *warm_up, strategy = strategies_of(spec)
        stages = [
            Stage(settings, learner, stage_strategy, part.last)
            for part, learner, stage_strategy in zip(parts_of(spec)[:-1], self.learners[:-1], warm_up, strict=True)
        ]
        return engine_of(spec.protocol.mode, settings)(
            link=link,
            store=store,
            clock=clock,
            learner=self.learners[-1],
            strategy=strategy,
            settings=settings,
            observer=observer,
            started=started,
            warm_up=stages,
        )


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
    method = resolve(spec.method, spec.task)
    stages = (
        StageDescription(
            method=part.method,
            down=task_layout(stage_learner.down, part.method).to_json(),
            up=stage_learner.up.to_json(),
            last=part.last,
        )
        for part, stage_learner in zip(parts_of(spec)[:-1], warm_up, strict=True)
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
        least_summed=(secure or SecureAggregation()).minimum_survivors,
        model_coding=spec.protocol.model_encoding,
        most_images=spec.protocol.maximum_images or MOST_IMAGES,
        documents=digest_of_study(study.federation, (), resolve),
        held_out_task=spec.task if spec.evaluation and spec.evaluation.silo_percent else None,
        embeddings=spec.embeddings.projection if spec.embeddings else None,
    )


def strategies_of(spec: FederationSpec) -> tuple[Strategy, ...]:
    """Return how updates are weighed and aggregated in each stage, the main method's last."""
    return tuple(Strategy.of(part.method, spec.task, spec.seed) for part in parts_of(spec))


def build_learners(
    spec: FederationSpec,
    images: "Mapping[str, ImageSet]",
    *,
    device: str,
    initial: Path | None,
    embeddings: Path | None = None,
) -> list[ServerLearner]:
    """Build what happens at the server in each stage.

    Parameters
    ----------
    spec : FederationSpec
        What is trained, and how.
    images : mapping
        The server's images by what they are for: ``anchors``, ``validation``, ``test``.
    device : str
        ``cpu``, ``cuda`` or ``auto``.
    initial : Path or None
        File of the weights to start from; None: random ones.
    embeddings : Path or None
        Folder in which a frozen encoder's embeddings are kept for other runs.

    Raises
    ------
    AnchorageError
        The model cannot be built, or the images or weights do not fit it.
    """
    from anchorage.learning.learners import build_server_learner

    return [
        build_server_learner(
            model=part.model,
            method=part.method,
            seed=spec.seed,
            anchors=images.get("anchors"),
            validation=images.get("validation"),
            test=images.get("test"),
            device=device,
            initial=initial,
            rounds=part.last,
            after=part.after,
            embeddings=embeddings,
            pictured=spec.embeddings,
        )
        for part in parts_of(spec)
    ]
