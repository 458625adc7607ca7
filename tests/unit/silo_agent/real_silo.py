"""A silo with a real trainer process and a server that is a list of messages."""

from collections.abc import Callable
from pathlib import Path

from silo_fakes import FakeLink, setup_with

from anchorage.api.base import Release
from anchorage.api.data import Partition, SiloData
from anchorage.api.method import Local, MethodSpec, ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.silo import SiloWorker
from anchorage.methods import resolve
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.task.classification import Classification
from anchorage.pieces.weighting.sub_consensus import SubConsensus
from anchorage.transport.messages import Announcement, Assigned, Permit, Task, TaskKind
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.confinement import Grants, confinable
from anchorage_silo.frames import Setup
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.trainer_process import TrainerProcess

MODEL = ModelDescription(network="SmallCnn", task=Classification(classes=tuple("0123456789")), image_size=8, channels=1)
METHOD = resolve(
    MethodSpec(
        name="FedAvg",
        weighting=SubConsensus(),
        local=Local(epochs=2, optimiser=Sgd(state="Persist")),
    )
)


def setup_of(
    state: Path,
    initial: ModelBytes,
    labels: str = "All",
    section: SiloData | None = None,
    method: ResolvedMethod = METHOD,
    model: ModelDescription = MODEL,
) -> Setup:
    state.mkdir()
    layout = initial.layout.to_json()
    run = RunDescription(
        federation="derm", seed=5, model=model, method=method, down=layout, up=layout, rounds=3, mode="Synchronous"
    )
    section = section or SiloData(format="Digits", use="Part", partition=Partition(recipe="Iid", parts=8, part=0))
    settings = {"labels": labels, "device": "cpu", "dataRoot": str(state)}
    return setup_with(
        state, run.to_json(), data=section.model_dump(by_alias=True, mode="json", exclude_none=True), **settings
    )


class Silo:
    """A worker with a real trainer, confined where the kernel can; `disturb` is called with every (round, step)."""

    def __init__(
        self,
        setup: Setup,
        disturb: Callable[["Silo", str], None] = lambda silo, task: None,
        release: Release = "Never",
    ) -> None:
        state, claim = setup.plain["state"], setup.plain["data"].get("claimName")
        images = str(Path(setup.plain["dataRoot"], claim)) if claim else ""
        grants = Grants(str(setup.folder), images, hidden=(state,), network=setup.devices > 1) if confinable() else None
        self.trainer = TrainerProcess(setup, release=release, grants=grants)
        self.link = FakeLink()
        self.samples, self.fingerprint = self.trainer.start()
        self.link.progress = lambda task, done, total: disturb(self, task) or 0  # type: ignore[method-assign]
        self.worker = SiloWorker(self.link, self.trainer, MappedBuffers(Path(state)))

    def round(self, number: int, model: ModelBytes) -> tuple[Announcement, bytes]:
        """Train once in round 1, twice in round 2, and so on."""
        task = Task(f"{number}.train", TaskKind.TRAIN, number, model.manifest, repetitions=number)
        self.link.models[model.digest] = model
        self.worker.handle(Assigned(task))
        self.worker.handle(Permit(task.id))
        return self.link.announcements[task.id], self.link.updates[task.id]
