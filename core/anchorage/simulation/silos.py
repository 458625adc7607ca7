"""Thousands of silos in one process: each is a name until it is given work, and few are in memory at a time."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.federation import Silo
from anchorage.api.metric_names import PSEUDO_LABEL_ACCURACY
from anchorage.api.run import RunDescription
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.secure_silo import FixedPointSilo
from anchorage.engine.silo import SiloWorker
from anchorage.engine.stages import stage_learner
from anchorage.engine.store import SpareUpdates
from anchorage.learning.data.held_out import trainable
from anchorage.learning.device import find_device
from anchorage.learning.learners import Examine, Networks, build_silo_learner
from anchorage.simulation.buffers import SiloBuffers, WorkingModel
from anchorage.simulation.images import SharedImages
from anchorage.simulation.link import InProcessLink
from anchorage.transport.messages import (
    Announcement,
    Bytes,
    Dismissed,
    Evaluation,
    Order,
    Out,
    Profile,
    Progress,
    Task,
    TaskKind,
)

KEPT_BYTES = 1 << 30
"""Pixels of the silos whose learners stay: on a GPU they lie in its memory."""
LEARNER_BYTES = 1 << 20
"""What a learner takes beside its pixels, about."""

Learners = Callable[[str], SiloLearner]
"""Returns a silo's learner, to be used before another silo's is asked for."""


@contextmanager
def naming(silo: str) -> Iterator[None]:
    """Have failures in the block name the silo whose images they are about."""
    try:
        yield
    except AnchorageError as error:
        if f"silo {silo}" in error.message:
            raise
        raise AnchorageError(error.failure, f"silo {silo}: {error.message}") from error


class LocalLearners:
    """Learners of silos that work one after another on one device, with the memory of one: network, scorer, gradients.

    Where silos heed what the others do meanwhile (validation cycles), trainings take turns, and each learner has its own.
    A learner is built when it is asked for. The least recently used ones are given up where the pixels of all exceed `kept_bytes`; what a
    silo keeps between rounds lies on disk.

    Parameters
    ----------
    run : RunDescription
        The run.
    silos : sequence of Silo
        All of them managed.
    images : SharedImages
        Their images.
    state : Path
        Gets a folder per silo that keeps something.
    device : str
        Such as ``cpu`` or ``cuda``.
    kept_bytes : int
        Limit of the pixels whose learners stay.
    """

    def __init__(
        self,
        run: RunDescription,
        silos: Sequence[Silo],
        images: SharedImages,
        state: Path,
        device: str,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._run, self._images, self._state, self._device = run, images, state, device
        self._silos = {silo.metadata.name: silo for silo in silos}
        self._networks: tuple[str, Networks] = ("", Networks(run, find_device(device)))
        self._learners: OrderedDict[str, tuple[SiloLearner, int]] = OrderedDict()
        self._nbytes, self._kept_bytes = 0, kept_bytes

    def __call__(self, silo: str) -> SiloLearner:
        """Return a silo's learner.

        Raises
        ------
        AnchorageError
            Its images cannot be used.
        """
        if silo not in self._learners:
            with naming(silo):
                self._learners[silo] = self._build(self._silos[silo])
            self._nbytes += self._learners[silo][1]
            while self._nbytes > self._kept_bytes and len(self._learners) > 1:
                self._nbytes -= self._learners.popitem(last=False)[1][1]
        self._learners.move_to_end(silo)
        return self._learners[silo][0]

    def _build(self, silo: Silo) -> tuple[SiloLearner, int]:
        name, labels, section = silo.metadata.name, silo.spec.labels, section_of(silo)
        images = self._images.of(section, labelled=labels != "None")
        silo_images = trainable(images, labels, name, self._run)
        truth = self._images.truth(section, labelled=labels != "None")
        examine = judge(
            truth[np.isin(images.digests, silo_images.digests)]
        )  # images are left out of training by their digests

        def build(run: RunDescription) -> SiloLearner:
            return build_silo_learner(
                run=run,
                silo=name,
                labels=labels,
                images=silo_images,
                state=self._state / name,
                device=self._device,
                networks=self._networks_of(run) if run.method.local.cycle is None else None,
                examine=examine,
                embeddings=self._images.embeddings,
            )

        return stage_learner(self._run, build), images.images.nbytes + LEARNER_BYTES

    def _networks_of(self, run: RunDescription) -> Networks:
        """Return the networks of a stage; those of another one are given up."""
        stage = f"{run.rounds} {run.method.name}"
        if self._networks[0] != stage:
            self._networks = stage, Networks(run, find_device(self._device))
        return self._networks[1]


def judge(truth: NDArray[np.int64]) -> Examine:
    """Return what tells how many accepted pseudo-labels are right, by the images' classes, int64 [n], -1 where nobody knows.

    Labels of silos without labels stay here: the learner hands its guesses over and gets a share back, after its training.
    """

    def examine(images: NDArray[np.int64], labels: NDArray[np.int64]) -> Mapping[str, float]:
        known = truth[images] >= 0
        return {PSEUDO_LABEL_ACCURACY: float((truth[images] == labels)[known].mean())} if known.any() else {}

    return examine


def section_of(silo: Silo) -> SiloData:
    """Return a managed silo's images.

    Raises
    ------
    ValueError
        It is not managed.
    """
    if silo.spec.managed is None:
        raise ValueError(f"silo {silo.metadata.name} has no `managed` section, so there are no images to simulate")
    return silo.spec.managed.data


class _LazyLearner:
    """A silo's learner (`SiloLearner`), built when there is work."""

    def __init__(self, silo: str, learners: Learners, broken: Callable[[AnchorageError], None]) -> None:
        self._silo, self._learners, self._broken = silo, learners, broken

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        learner = self._learner()
        with self._naming_in_mistakes():
            return learner.train(task, model, out, progress)

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        learner = self._learner()
        with self._naming_in_mistakes():
            return learner.evaluate(task, model)

    @contextmanager
    def _naming_in_mistakes(self) -> Iterator[None]:
        """Have mistakes of pieces name the silo and end the simulation, before the server hears that the task failed."""
        try:
            yield
        except AnchorageError as error:
            if error.failure is not PIECE_WRONG:
                raise
            named = AnchorageError(PIECE_WRONG, f"silo {self._silo}: {error.message}")
            named.__cause__ = error
            self._broken(named)
            raise named from error

    def _learner(self) -> SiloLearner:
        """Return the learner; a silo whose images cannot be used ends the simulation, as its agent would not have started."""
        try:
            return self._learners(self._silo)
        except AnchorageError as error:
            self._broken(error)
            raise


class SimulatedSilo:
    """One silo: its end of the link, its worker, and its share of the common buffers.

    Parameters
    ----------
    name : str
        The silo.
    profile : Profile
        What it says of itself.
    link : InProcessLink
        The server's end.
    working : mapping of TaskKind to WorkingModel
        The models that all silos have in common.
    spare : SpareUpdates
        Memory of updates.
    learners : callable
        Gives it its learner.
    secure : FixedPointSilo, optional
        As in `SiloWorker`.
    state : Path, optional
        Folder of what silos keep between rounds; the run has an encoding with error feedback.
    """

    def __init__(
        self,
        name: str,
        profile: Profile,
        link: InProcessLink,
        working: Mapping[TaskKind, WorkingModel],
        spare: SpareUpdates,
        learners: Learners,
        secure: FixedPointSilo | None = None,
        state: Path | None = None,
    ) -> None:
        self.link = link.connect(name, profile)
        self._buffers = SiloBuffers(working, spare, self.link.source)
        self.link.hand_over = self._buffers.hand_over
        self.worker = SiloWorker(
            self.link,
            _LazyLearner(name, learners, link.break_down),
            self._buffers,
            lanes=link.lanes(name),
            secure=secure,
            feedback=None if state is None else ErrorFeedback(state / name / "feedback"),
        )

    def handle(self, order: Order) -> None:
        """Carry out one order."""
        self.worker.handle(order)
        if isinstance(order, Dismissed):
            self._buffers.forget(order.task)


def working_models() -> Mapping[TaskKind, WorkingModel]:
    """Return the models that silos which work one after another have in common."""
    return {kind: WorkingModel() for kind in TaskKind}


class SimulatedSilos:
    """All silos of a simulation; they work one after another, in the caller's thread.

    Parameters
    ----------
    link : InProcessLink
        The server's end.
    profiles : mapping of str to Profile
        The silos, in the order in which they join.
    spare : SpareUpdates
        Memory of updates.
    learners : callable
        Gives a silo its learner.
    secure : FixedPointSilo, optional
        As in `SiloWorker`.
    take_turns : bool
        Whether a silo may go on before another one's training is over, so that each needs a working model of its own.
    state : Path, optional
        As in `SimulatedSilo`.
    """

    def __init__(
        self,
        link: InProcessLink,
        profiles: Mapping[str, Profile],
        spare: SpareUpdates,
        learners: Learners,
        secure: FixedPointSilo | None = None,
        take_turns: bool = False,
        state: Path | None = None,
    ) -> None:
        self._due, self._take_turns = link.due, take_turns
        self._common = working_models()
        self._silos = {
            name: SimulatedSilo(name, profile, link, self._models_of(name), spare, learners, secure, state)
            for name, profile in profiles.items()
        }

    def _models_of(self, silo: str) -> Mapping[TaskKind, WorkingModel]:
        """Return the working models of a silo."""
        return working_models() if self._take_turns else self._common

    def work(self) -> bool:
        """Carry out one order of the silo whose turn it is; False where none has any."""
        while self._due:
            name, _ = self._due.popitem(last=False)
            silo = self._silos[name]
            order = silo.link.next_order(0.0)
            if order is not None:
                self._due[name] = None  # it may have another order, after those of the other silos
                silo.handle(order)
                return True
        return False

    def close(self) -> None:
        """Nothing is to be ended."""
