"""What the documents of a study make of a run: stages with their strategies and learners, and the engine that plays them.

Server, simulation and forecast put a run together here; they differ in link, store, clock and where images come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.api.changes import Fields
from anchorage.api.federation import FederationSpec
from anchorage.api.files import Study
from anchorage.api.run import HeldOut, RunDescription
from anchorage.engine import engine_of
from anchorage.engine.engine import Engine
from anchorage.engine.events import Observer
from anchorage.engine.interfaces import ServerLearner
from anchorage.engine.settings import RoundSettings
from anchorage.engine.stages import Stage
from anchorage.engine.store import Identity, RoundStore
from anchorage.engine.strategy import Strategy
from anchorage.methods.study import describe_run, parts_of
from anchorage.transport.exchange import Exchange
from anchorage.transport.link import Clock

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.learning.data import ImageSet


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
            Stage(settings, learner, own, part.last)
            for part, learner, own in zip(parts_of(spec)[:-1], self.learners[:-1], warm_up, strict=True)
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
            model=spec.model_description,
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
