"""Silos spread over a Ray cluster: each actor trains its silos one after another, a lane of this process waits for it.

Ray moves Python objects between its own processes; nothing that came from a hospital is read that way.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anchorage.api.errors import CATALOGUE, AnchorageError, commands
from anchorage.api.federation import Silo
from anchorage.api.run import RunDescription
from anchorage.simulation.images import SharedImages
from anchorage.simulation.silos import LocalLearners
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task

LOCAL = "local"
"""In the place of a cluster's address: a cluster of this machine, for this simulation."""


class _Host:
    """What an actor does: the learners of some silos. Failures of the catalogue come back as code and message."""

    def __init__(self, run: str, silos: Sequence[str], data_root: str, state: str, device: str) -> None:
        description = RunDescription.model_validate_json(run)
        folder = Path(state)
        folder.mkdir(parents=True, exist_ok=True)
        images = SharedImages(Path(data_root), description.model, description.seed, folder)
        documents = [Silo.model_validate_json(silo) for silo in silos]
        self._learners = LocalLearners(description, documents, images, folder, device)

    def prepare(self, silo: str) -> Any:
        """Build a silo's learner."""
        return self._attempt(lambda: bool(self._learners(silo)))

    def train(self, silo: str, task: Task, model: Bytes) -> Any:
        """Return the announcement and the update."""
        updates: list[Bytes] = []

        def out(nbytes: int) -> Bytes:
            updates.append(np.empty(nbytes, np.uint8))
            return updates[-1]

        def train() -> tuple[Announcement, Bytes | None]:
            announcement = self._learners(silo).train(task, model, out, lambda done, total: 0)
            return announcement, updates[-1] if announcement.update else None

        return self._attempt(train)

    def evaluate(self, silo: str, task: Task, model: Bytes) -> Any:
        """Return the evaluation."""
        return self._attempt(lambda: self._learners(silo).evaluate(task, model))

    def _attempt(self, work: Callable[[], Any]) -> tuple[Any, str, str]:
        try:
            return work(), "", ""
        except AnchorageError as error:
            return None, error.code, error.message


class RayLearners:
    """Learners of silos in the actors of a Ray cluster. `close` lets go of the cluster.

    Parameters
    ----------
    address : str
        The cluster's, as ``ray.init`` takes it, or `LOCAL`. Its machines see the data root and the state folder under the same paths.
    run : RunDescription
        The run.
    silos : sequence of Silo
        All of them managed.
    data_root, state : Path
        As for `LocalLearners`.
    device : str
        ``cpu``, or ``cuda``: a GPU per actor.

    Raises
    ------
    AnchorageError
        Ray is not installed, or the cluster cannot be reached.
    """

    device = "cpu"

    def __init__(
        self, address: str, run: RunDescription, silos: Sequence[Silo], data_root: Path, state: Path, device: str
    ) -> None:
        self._ray = _connect(address)
        resource = "GPU" if device.startswith("cuda") else "CPU"
        self.lanes = max(1, min(len(silos), int(self._ray.cluster_resources().get(resource, 1))))
        self._places = {silo.metadata.name: number % self.lanes for number, silo in enumerate(silos)}
        actor = self._ray.remote(num_cpus=1, num_gpus=int(resource == "GPU"))(_Host)
        documents = [silo.model_dump_json(by_alias=True, exclude_unset=True) for silo in silos]
        document_parts = [documents[place :: self.lanes] for place in range(self.lanes)]
        text = run.to_json()
        self._hosts = [actor.remote(text, part, str(data_root), str(state), device) for part in document_parts]
        self._models: dict[int, tuple[str, Any]] = {}

    def place(self, silo: str) -> int:
        """Return which actor trains a silo: always the same one."""
        return self._places[silo]

    def __call__(self, silo: str) -> "RayLearner":
        """Return a silo's learner.

        Raises
        ------
        AnchorageError
            Its images cannot be used, or the actor is lost.
        """
        learner = RayLearner(self, silo)
        learner.ask("prepare")
        return learner

    def ask(self, silo: str, what: str, *arguments: Any) -> Any:
        """Have a silo's actor do something, and return what it says.

        Raises
        ------
        AnchorageError
            It failed, or the actor is lost.
        """
        method = getattr(self._hosts[self._places[silo]], what)
        try:
            answer, code, message = self._ray.get(method.remote(silo, *arguments))
        except self._ray.exceptions.RayError as error:
            lost = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise AnchorageError(commands.RAY_FAILED, f"the actor of silo {silo}: {lost}") from error
        if code:
            raise AnchorageError(CATALOGUE[code], message)
        return answer

    def put(self, silo: str, task: Task, model: Bytes) -> Any:
        """Let actors read a model, once per lane and model; it stays until the lane has another one."""
        place, digest = self._places[silo], task.model.digest
        if self._models.get(place, ("", None))[0] != digest:
            shared = next(
                (shared_model for shared_model in list(self._models.values()) if shared_model[0] == digest), None
            )
            self._models[place] = shared or (digest, self._ray.put(model.copy()))
        return self._models[place][1]

    def close(self) -> None:
        """Let go of the cluster."""
        self._ray.shutdown()


class RayLearner:
    """One silo's learner (`SiloLearner`), in an actor."""

    def __init__(self, learners: RayLearners, silo: str) -> None:
        self._learners, self._silo = learners, silo

    def ask(self, what: str, *arguments: Any) -> Any:
        """Have the actor do something."""
        return self._learners.ask(self._silo, what, *arguments)

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train in the actor; see `anchorage.engine.interfaces.SiloLearner.train`. How far it is, is not told."""
        announcement: Announcement
        announcement, update = self.ask("train", task, self._learners.put(self._silo, task, model))
        if update is not None:
            out(update.nbytes)[:] = update
        return announcement

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score in the actor; see `anchorage.engine.interfaces.SiloLearner.evaluate`."""
        evaluation: Evaluation = self.ask("evaluate", task, self._learners.put(self._silo, task, model))
        return evaluation


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError as error:
        message = f"{error.name} is not installed; pip install 'anchorage[ray]', or leave --ray out"
        raise AnchorageError(commands.PACKAGE_MISSING, message) from error
    try:
        options = {} if address == LOCAL else {"address": address}
        ray.init(**options, include_dashboard=None if options else False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise AnchorageError(commands.RAY_FAILED, f"{address}: {lines[0]}") from error
    return ray
