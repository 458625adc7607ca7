"""Silos that train beside each other: a lane is a thread, on a GPU with a stream of its own, and each silo always has the same one."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Protocol

from anchorage.api.federation import Silo
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.secure_silo import FixedPointSilo
from anchorage.engine.store import SpareUpdates
from anchorage.learning.device import own_stream
from anchorage.simulation.buffers import WorkingModel
from anchorage.simulation.images import SharedImages
from anchorage.simulation.link import InProcessLink
from anchorage.simulation.silos import KEPT_BYTES, LocalLearners, SimulatedSilo, SimulatedSilos, working_models
from anchorage.transport.messages import Profile, TaskKind


class PlacedLearners(Protocol):
    """Learners of silos that are divided among lanes."""

    device: str
    """Where the lanes' threads calculate; ``cpu`` where they only wait."""
    lanes: int

    def place(self, silo: str) -> int:
        """Return a silo's lane, from 0 on: always the same one."""

    def __call__(self, silo: str) -> SiloLearner:
        """Return a silo's learner, to be used before another silo's of this lane is asked for."""

    def close(self) -> None:
        """Let go of what trains; who waits for it hears of it."""


class LaneLearners:
    """Learners of silos in the lanes of this process: each lane has the memory of one silo, as `LocalLearners` have it.

    Parameters
    ----------
    run, silos, images, state, device
        As for `LocalLearners`.
    lanes : int
        How many silos train at once.
    """

    def __init__(
        self, run: RunDescription, silos: Sequence[Silo], images: SharedImages, state: Path, device: str, lanes: int
    ) -> None:
        self.device, self.lanes = device, min(lanes, len(silos))
        self._places = {silo.metadata.name: number % self.lanes for number, silo in enumerate(silos)}
        self._building = Lock()
        self._learners = [
            LocalLearners(run, silos[lane :: self.lanes], images, state, device, KEPT_BYTES // self.lanes)
            for lane in range(self.lanes)
        ]

    def place(self, silo: str) -> int:
        """Return a silo's lane."""
        return self._places[silo]

    def __call__(self, silo: str) -> SiloLearner:
        """Return a silo's learner; images are opened by one lane at a time.

        Raises
        ------
        AnchorageError
            Its images cannot be used.
        """
        with self._building:
            return self._learners[self._places[silo]](silo)

    def close(self) -> None:
        """Nothing outlives the lanes."""


class SilosInLanes(SimulatedSilos):
    """All silos of a simulation, those of different lanes beside each other.

    Parameters
    ----------
    link : InProcessLink
        The server's end.
    profiles : mapping of str to Profile
        The silos.
    spare : SpareUpdates
        Memory of updates.
    learners : PlacedLearners
        Give a silo its learner and its lane.
    secure : FixedPointSilo, optional
        As in `SiloWorker`.
    state : Path, optional
        As in `SimulatedSilo`.
    """

    def __init__(
        self,
        link: InProcessLink,
        profiles: Mapping[str, Profile],
        spare: SpareUpdates,
        learners: PlacedLearners,
        secure: FixedPointSilo | None = None,
        state: Path | None = None,
    ) -> None:
        self._link, self._learners = link, learners
        self._of_lanes: dict[int, Mapping[TaskKind, WorkingModel]] = {}
        self._lanes = [ThreadPoolExecutor(1, "silos", own_stream, (learners.device,)) for _ in range(learners.lanes)]
        super().__init__(link, profiles, spare, learners, secure, state=state)

    def _models_of(self, silo: str) -> Mapping[TaskKind, WorkingModel]:
        """Return the working models of a silo's lane."""
        return self._of_lanes.setdefault(self._learners.place(silo), working_models())

    def work(self) -> bool:
        """Have the silos that are due carry out their orders; False where none is."""
        begun = False
        while self._due:
            name, _ = self._due.popitem(last=False)
            lane = self._lanes[self._learners.place(name)]
            lane.submit(self._drain, self._silos[name]).add_done_callback(self._note)
            begun = True
        return begun

    def close(self) -> None:
        """End the threads: what is trained is withdrawn at its next step."""
        for silo in self._silos.values():
            silo.worker.stop()
        self._learners.close()
        for lane in self._lanes:
            lane.shutdown(cancel_futures=True)

    def _drain(self, silo: SimulatedSilo) -> None:
        while (order := silo.link.next_order(0.0)) is not None:
            silo.handle(order)

    def _note(self, done: "Future[None]") -> None:
        """End the run with what a lane let through."""
        fault = None if done.cancelled() else done.exception()
        if isinstance(fault, Exception):
            self._link.break_down(fault)
