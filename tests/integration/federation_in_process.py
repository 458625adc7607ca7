"""What null trainers reach in one process: the engine, the workers and the store in memory, without sockets and files."""

from collections.abc import Callable
from dataclasses import replace

from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine import engine_of
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.events import tell_all
from anchorage.engine.secure_silo import FixedPointSilo, UnmaskedSilo
from anchorage.engine.silo import SiloWorker
from anchorage.engine.store import MemoryStore
from anchorage.engine.strategy import Strategy
from anchorage.methods import resolve
from anchorage.methods.composition import describe_run, round_settings
from anchorage.simulation.link import InProcessLink, InProcessServerLink
from anchorage.simulation.run import WallClock
from anchorage.transport.messages import Order, Profile
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner

Silos = Callable[[RunDescription, str, int], FixedPointSilo]
"""``silos(run, silo, samples)`` protects a silo's updates."""


def null_step(silo: str) -> tuple[float, int]:
    """Return what a silo's null trainer adds to every float, and how many images it says that it has."""
    place = ord(silo) - ord("a") + 1
    return 0.5 * place, 100 * place


def null_digest(study: Study) -> str:
    """Return the digest of the last model of a synchronous federation of null trainers."""
    return null_digests(study, study.federation.spec.rounds)[-1]


def null_digests(
    study: Study, rounds: int, silos: Silos | None = None, cut: Callable[[str, Order], bool] = lambda silo, order: False
) -> list[str]:
    """Return the digests of a synchronous federation of null trainers after each of so many rounds, from round 0.

    `silos` protect their updates, and check keys where they have a `check_keys`.
    Where `cut` says so, a silo's connection is made again in place of an order to it.
    """
    initial = study.federation.spec.model.initial
    assert initial is not None
    learner = FileModel(study.file.parent / initial)
    run = describe_run(study, learner)
    if silos is None and run.secure_aggregation is not None:
        unmasked = UnmaskedSilo(run)
        silos = lambda run, silo, samples: unmasked
    workers: dict[str, SiloWorker] = {}
    ends: dict[str, InProcessServerLink] = {}

    def pump() -> bool:
        orders = [(silo, end.next_order(0.0)) for silo, end in ends.items()]
        for silo, order in orders:
            if order is not None and cut(silo, order):
                ends[silo].close()
                connect(silo)
            elif order is not None:
                workers[silo].handle(order)
        return any(order is not None for _, order in orders)

    link = InProcessLink(WallClock(), run.to_json(), pump)
    names = [silo.metadata.name for silo in study.silos]
    secured = {silo: silos(run, silo, null_step(silo)[1]) if silos else None for silo in names}

    def connect(silo: str) -> None:
        step, samples = null_step(silo)
        ends[silo] = end = link.connect(silo, Profile("All", samples, "test"))
        null = NullLearner(learner.down, learner.up, step, samples)
        feedback = ErrorFeedback(study.file.parent / "feedback" / silo)
        workers[silo] = SiloWorker(end, null, MemoryBuffers(), secure=secured[silo], feedback=feedback)

    for silo in names:
        connect(silo)
    spec, masked = study.federation.spec, not isinstance(secured[names[0]], UnmaskedSilo)
    store = MemoryStore()
    settings = replace(
        round_settings(study), rounds=rounds, masked=masked, check_keys=getattr(silos, "check_keys", None)
    )
    engine = engine_of(spec.protocol.mode, settings)(
        link=link,
        store=store,
        clock=WallClock(),
        learner=learner,
        strategy=Strategy.of(resolve(spec.method), spec.task, spec.seed),
        settings=settings,
        observer=tell_all(),
    )
    engine.run()
    return [record.digest for record in store.history()]
