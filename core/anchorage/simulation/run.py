"""A whole federation in one process: the server's engine, the silos' workers and learners, no network."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from anchorage.api.changes import digest_of_study
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.storage import CHECKPOINT_DAMAGED, FOREIGN_CHECKPOINT, JOURNAL_DAMAGED
from anchorage.api.fact import Fact
from anchorage.api.federation import Silo
from anchorage.api.files import Study
from anchorage.api.method import ResolvedMethod
from anchorage.api.regular_files import read_regular
from anchorage.api.run import RunDescription
from anchorage.engine.events import Observer, tell_all
from anchorage.engine.interfaces import RoundRecord, ServerLearner
from anchorage.engine.secure_silo import UnmaskedSilo
from anchorage.engine.settings import RoundSettings
from anchorage.engine.store import DiskStore, HeldUpdates, MemoryStore, RoundStore, SpareUpdates
from anchorage.learning.data.fingerprints import Fingerprint
from anchorage.learning.data.held_out import kept_apart
from anchorage.methods import resolve
from anchorage.methods.composition import Composition, build_learners, round_settings, strategies_of
from anchorage.methods.pretrained import initial_of, initial_source
from anchorage.methods.results import write_models
from anchorage.simulation.images import FINGERPRINTS, DecodedImages, SharedImages
from anchorage.simulation.lanes import LaneLearners, SilosInLanes
from anchorage.simulation.link import InProcessLink
from anchorage.simulation.ray_silos import RayLearners
from anchorage.simulation.remembered import Results, remember
from anchorage.simulation.silos import Learners, LocalLearners, SimulatedSilos, naming, section_of
from anchorage.simulation.speeds import Speeds
from anchorage.simulation.timed_link import TimedLink
from anchorage.simulation.virtual_time import VirtualTime
from anchorage.transport.link import Clock
from anchorage.transport.messages import Profile


class WallClock:
    """The machine's time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class Simulation:
    """A federation whose silos are all managed, to be played in this process.

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
    resume : bool
        Whether every round is kept in `state`, and the last one that lies there is gone on from. An asynchronous federation is played again
        from its beginning, to the same bits, with what its silos had calculated.
    speeds : Speeds, optional
        How fast silos are. Given, or asynchronous, the simulation plays in virtual time: records have seconds since its beginning.
    ray : str, optional
        Address of a Ray cluster that trains the silos, or ``local``; not in virtual time.
    at_once : int
        How many silos train at the same time; in virtual time one does.
    images : SharedImages, optional
        Reads the images.
    embeddings : Path, optional
        Folder where a frozen encoder's embeddings are kept for other runs; not with `ray` or `images`.
    decoded : DecodedImages, optional
        What other simulations of this process decoded.

    Raises
    ------
    AnchorageError
        The images or the model cannot be used, a speed is no silo's, or `state` cannot be written.
    """

    def __init__(
        self,
        study: Study,
        data_root: Path,
        state: Path,
        *,
        device: str = "cpu",
        resume: bool = False,
        speeds: Speeds | None = None,
        ray: str | None = None,
        at_once: int = 1,
        images: SharedImages | None = None,
        embeddings: Path | None = None,
        decoded: DecodedImages | None = None,
    ) -> None:
        spec = study.federation.spec
        state.mkdir(parents=True, exist_ok=True)
        if ray is not None and (speeds is not None or spec.protocol.mode == "Asynchronous"):
            raise AnchorageError(commands.RAY_FAILED, "silos in virtual time train in this process; leave --ray out")
        if speeds is not None:
            speeds.check(silo.metadata.name for silo in study.silos)
        self._study, self._speeds, initial = study, speeds, initial_of(spec, data_root)
        self._initial = initial_source(spec, data_root)
        if not (resume and _has_begun(state)):
            rmtree(state / FINGERPRINTS, ignore_errors=True)
        images = images or SharedImages(data_root, spec.model_description, spec.seed, state, embeddings, decoded)
        treatment = spec.evaluation.on_leakage if spec.evaluation else "Allow"
        read = {name: images.of(section) for name, section in spec.server_data.items()}
        server, held_out = kept_apart(read, treatment, bytes(32))
        self._fingerprints = {name: asdict(Fingerprint.of(image_set, bytes(32))) for name, image_set in server.items()}
        learners = build_learners(spec, server, device=device, initial=initial, embeddings=images.embeddings)
        self._composition = Composition(study, learners)
        self.run = self._composition.describe(held_out)
        self._spare = SpareUpdates(state)
        self._profiles = {silo.metadata.name: _profile(silo, images) for silo in study.silos}
        self.store, results = self._open_store(state, resume)
        self._silos_folder = silos_folder = (state / "silos").resolve()
        if self.store.latest() is None and not (results and results.has_results):
            rmtree(
                silos_folder, ignore_errors=True
            )  # what silos kept in an attempt that is not gone on from must not be found
        learners_of = self._silo_learners(ray, data_root.resolve(), device, at_once, images)
        self._learners = learners_of if results is None else remember(learners_of, results)

    def _open_store(self, state: Path, resume: bool) -> tuple[RoundStore, Results | None]:
        """Return where rounds are kept, and what silos of an asynchronous federation that is played again had calculated."""
        memory = MemoryStore(self._spare, (0, *(end + 1 for end in self.run.ends[:-1]))[-1])
        if not resume:
            return memory, None
        federation, silos = self._study.federation, self._study.silos
        length = Fact.LENGTH_MATTERS in resolve(federation.spec.method, federation.spec.task).facts()
        decided = digest_of_study(federation, silos, resolve, length=length)
        decided += f" from {self._initial}" if self._initial else ""  # a name may have other weights by now
        if federation.spec.protocol.mode == "Synchronous":
            return self._disk_store(state / "rounds", decided), None
        pace = [str((self._speeds or Speeds()).of(silo.metadata.name)) for silo in silos]
        return memory, Results(state / "results", "\n".join([decided, *pace]))

    def _silo_learners(
        self, ray: str | None, data_root: Path, device: str, at_once: int, images: SharedImages
    ) -> Learners:
        """Return the silos' learners: on a Ray cluster, several at once in this process, or one after another."""
        run, silos, silos_folder = self.run, self._study.silos, self._silos_folder
        if ray is not None:
            return RayLearners(ray, run, silos, data_root, silos_folder, device)
        if at_once > 1 and self._speeds is None and run.mode == "Synchronous":
            return LaneLearners(run, silos, images, silos_folder, device, at_once)
        return LocalLearners(run, silos, images, silos_folder, device)

    def _disk_store(self, folder: Path, decided: str) -> DiskStore:
        """Open the rounds of an earlier attempt; those of another simulation, or what a power cut damaged, are given up."""
        identity, strategies = (
            self._composition.identity({"study": decided}),
            strategies_of(self._study.federation.spec),
        )
        keeps_updates = any(each.keeps_updates for each in strategies)  # for longer than a round, so on disk
        options: dict[str, Any] = {"updates": None if keeps_updates else HeldUpdates(self._spare), "sync": False}
        store: DiskStore | None = None
        try:
            store = DiskStore(folder, identity, **options)
            store.latest()
        except AnchorageError as error:
            if store is not None:
                store.close()
            if error.failure not in (FOREIGN_CHECKPOINT, CHECKPOINT_DAMAGED, JOURNAL_DAMAGED):
                raise
            rmtree(folder)
            return DiskStore(folder, identity, **options)
        return store

    def play(self, observer: Observer | None = None) -> RoundRecord:
        """Play the rounds that are left, and return the last record.

        Raises
        ------
        AnchorageError
            The run failed.
        """
        try:
            welcome = self.run.to_json()
            rounds = Rounds(
                self._study,
                self._composition.learners[-1],
                self._profiles,
                self._learners,
                self.store,
                self._spare,
                observer or tell_all(),
                welcome,
                self._speeds,
                self._composition.learners[:-1],
                self._silos_folder,
            )
            return rounds.play()
        finally:
            self.store.close()

    def write_models(self, folder: Path) -> None:
        """Write the final and the best model of a simulation that is over, with their card.

        Raises
        ------
        AnchorageError
            They cannot be written.
        """
        write_models(
            folder,
            self._study,
            self.run,
            self.store,
            self._composition.learners[-1],
            self._fingerprints,
            initial=self._initial,
            simulated=True,
        )


def _has_begun(state: Path) -> bool:
    """Return whether a folder holds something that can be gone on from."""
    journal = state / "rounds" / "journal.jsonl"
    return (journal.exists() and b"\n" in read_regular(journal)) or any((state / "results").glob("*/*"))


def _profile(silo: Silo, images: SharedImages) -> Profile:
    with naming(silo.metadata.name):
        return Profile(
            silo.spec.labels, images.count(section_of(silo), labelled=silo.spec.labels != "None"), "simulation"
        )


def simulate(
    study: Study,
    data_root: Path,
    state: Path,
    *,
    device: str = "cpu",
    observer: Observer | None = None,
    speeds: Speeds | None = None,
) -> tuple[RoundRecord, RoundStore]:
    """Play a federation whose silos are all managed, in this process, from its beginning; see `Simulation`.

    Returns
    -------
    tuple of RoundRecord and RoundStore
        The last record, and the store with every round's record and the last model. For the same documents the model's digest is that of
        the run over gRPC (synchronous mode).

    Raises
    ------
    AnchorageError
        The images, the model or the run failed.
    """
    simulation = Simulation(study, data_root, state, device=device, speeds=speeds)
    return simulation.play(observer), simulation.store


@dataclass
class Rounds:
    """The rounds of a federation that are left, with every silo in this process."""

    study: Study
    """The documents."""
    learner: ServerLearner
    """What happens at the server."""
    profiles: Mapping[str, Profile]
    """The silos."""
    learners: Learners
    """Gives a silo its learner."""
    store: RoundStore
    """What was committed."""
    spare: SpareUpdates
    """Memory of updates, which the store fills."""
    observer: Observer
    """Who watches."""
    welcome: str = "{}"
    """The run's description (JSON)."""
    speeds: Speeds | None = None
    """As in `Simulation`."""
    warm_up: Sequence[ServerLearner] = ()
    """What happens at the server in the stages of the warm-up."""
    state: Path | None = None
    """Folder of what silos keep between rounds."""

    def play(self) -> RoundRecord:
        """Play them, and return the last record.

        Raises
        ------
        AnchorageError
            The run failed.
        """
        settings = replace(round_settings(self.study), masked=False)
        spec = self.study.federation.spec
        method, secure = resolve(spec.method, spec.task), self._secure(settings)
        link, clock = self._link(method, lambda: silos.work())
        silos = (
            SilosInLanes(link, self.profiles, self.spare, self.learners, secure, self.state)
            if isinstance(self.learners, LaneLearners | RayLearners)
            else SimulatedSilos(
                link, self.profiles, self.spare, self.learners, secure, method.local.cycle is not None, self.state
            )
        )
        composition = Composition(self.study, (*self.warm_up, self.learner))
        engine = composition.engine(settings, link=link, store=self.store, clock=clock, observer=self.observer)
        try:
            return engine.run()
        finally:
            silos.close()
            if isinstance(clock, VirtualTime):
                clock.close()

    def _secure(self, settings: RoundSettings) -> UnmaskedSilo | None:
        if settings.fractional_bits is None:
            return None
        return UnmaskedSilo(RunDescription.model_validate_json(self.welcome))

    def _link(self, method: ResolvedMethod, work: Callable[[], bool]) -> tuple[InProcessLink, Clock]:
        """Return the server's end, and the clock: virtual time where speeds are given, or silos do not wait for each other."""
        if self.speeds is None and self.study.federation.spec.protocol.mode == "Synchronous":
            return InProcessLink(WallClock(), self.welcome, work), WallClock()
        latest = self.store.latest()
        time, has_cycle = VirtualTime(latest.record.time if latest else 0.0), method.local.cycle is not None
        speeds, size = self.speeds or Speeds(), method.local.batch_size
        return TimedLink(time, self.welcome, work, speeds, batch_size=size, is_cyclic=has_cycle), time
