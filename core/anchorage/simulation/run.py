"""A whole federation in one process: the server's engine, the silos' workers and learners, no network."""

import time
from dataclasses import dataclass
from pathlib import Path

from anchorage.aggregation import build_memory, build_server_step, build_weigher
from anchorage.data import ImageSet
from anchorage.learning import build_server_learner, build_silo_learner
from anchorage.messages import Profile
from anchorage.methods import resolve
from anchorage.rounds import ENGINES
from anchorage.rounds.buffers import MemoryBuffers
from anchorage.rounds.interfaces import RoundRecord, ServerLearner
from anchorage.rounds.observer import Observer, Observers
from anchorage.rounds.silo import SiloWorker
from anchorage.rounds.study import describe_run, read_images, round_settings
from anchorage.simulation.link import InProcessLink, InProcessServerLink
from anchorage.simulation.store import MemoryStore
from anchorage.spec.data import DataSection
from anchorage.spec.federation import FederationSpec, Managed, Silo
from anchorage.spec.files import Study
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.run import RunDescription


class WallClock:
    """The machine's time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


@dataclass
class _SimulatedSilo:
    link: InProcessServerLink
    worker: SiloWorker

    def work(self) -> bool:
        """Carry out one order; False where there is none."""
        order = self.link.next_order(0.0)
        if order is None:
            return False
        self.worker.handle(order)
        return True


def simulate(
    study: Study, data_root: Path, state: Path, *, device: str = "cpu", observer: Observer | None = None
) -> tuple[RoundRecord, MemoryStore]:
    """Play a federation whose silos are all managed, in this process.

    Parameters
    ----------
    study : Study
        The documents.
    data_root : Path
        Folder that holds the claims.
    state : Path
        Folder for what silos keep between rounds (momentum).
    device : str
        ``cpu``, ``cuda`` or ``auto``, for the server and every silo.
    observer : Observer, optional
        Who watches.

    Returns
    -------
    tuple of RoundRecord and MemoryStore
        The last record, and the store with every round's record and the last model. For the same documents the model's digest is that of
        the run over gRPC (synchronous mode).

    Raises
    ------
    AnchorageError
        The images, the model or the run failed.
    """
    spec = study.federation.spec
    method = resolve(spec.method)
    learner = _server_learner(spec, method, data_root, device)
    run = describe_run(study, learner)
    silos: list[_SimulatedSilo] = []

    def pump() -> bool:
        worked = [silo.work() for silo in silos]
        return any(worked)

    link = InProcessLink(WallClock(), run.model_dump_json(by_alias=True), pump)
    for silo in study.silos:
        silos.append(_connect(silo, run, link, data_root, state / silo.metadata.name, device))
    store = MemoryStore()
    engine = ENGINES[spec.protocol.mode](
        link=link,
        store=store,
        clock=WallClock(),
        learner=learner,
        weigher=build_weigher(method.weighting, spec.model.num_classes),
        settings=round_settings(study),
        observer=observer or Observers(),
        server_step=build_server_step(method.server_step),
        memory=build_memory(method, spec.model.num_classes),
    )
    return engine.run(), store


def _server_learner(spec: FederationSpec, method: ResolvedMethod, data_root: Path, device: str) -> ServerLearner:
    def images_of(section: DataSection | None) -> ImageSet | None:
        return None if section is None else read_images(section, data_root, spec.model, spec.seed)

    return build_server_learner(
        model=spec.model,
        method=method,
        seed=spec.seed,
        anchors=images_of(spec.anchor_data),
        test=images_of(spec.evaluation.data if spec.evaluation else None),
        device=device,
        initial=data_root / spec.model.initial if spec.model.initial else None,
    )


def _connect(
    silo: Silo, run: RunDescription, link: InProcessLink, data_root: Path, state: Path, device: str
) -> _SimulatedSilo:
    managed: Managed | None = silo.spec.managed
    if managed is None:
        raise ValueError(
            f"silo {silo.metadata.name} has no `managed` section, so there are no images to simulate it with"
        )
    images = read_images(managed.data, data_root, run.model, run.seed)
    if silo.spec.labels == "None":
        images = images.without_labels()
    state.mkdir(parents=True, exist_ok=True)
    learner = build_silo_learner(
        run=run, silo=silo.metadata.name, labels=silo.spec.labels, images=images, state=state, device=device
    )
    end = link.connect(silo.metadata.name, Profile(silo.spec.labels, len(images.labels), "simulation"))
    return _SimulatedSilo(end, SiloWorker(end, learner, MemoryBuffers()))
