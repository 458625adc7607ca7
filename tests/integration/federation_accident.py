"""One of our processes with an accident: ``python federation_accident.py MODULE PLACE ROUND ACTION --config FILE``.

The process is the module's own; at one place of one round it kills itself, ends itself politely, or runs out of disk. Only there does it differ
from the real one, so that every moment of a round can be tested without a race.

Places of ``anchorage_server``: ``dispatched``, ``Uploading`` and ``Arrived`` (the first silo's), every step of the engine, ``renamed``
(the checkpoint has its name, the journal line is missing), ``torn`` (half of the journal line is on disk), ``committed``.
Places of ``anchorage_silo``: ``kept`` (the update is whole on disk, the server knows nothing), ``announced``; of its trainer: ``trained``
(everything is written, the agent knows nothing).
Actions: a signal's name, ``full``. A place is reached once; a process that is started again passes it.
The server may also be made impatient: ``pings SECONDS fast`` has it ask silent silos for a sign of life so often.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

FULL_BYTES = 1
"""Size beyond which no file grows on the full disk."""


def main() -> None:
    module, place, number, action, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    accident = Accident(place, int(number), action)
    if module == "anchorage_server":
        prepare_server(accident)
        from anchorage_server.main import main
    elif module == "anchorage_silo":
        prepare_agent(accident)
        from anchorage_silo.main import main
    else:
        prepare_trainer(accident)
        from anchorage_silo.trainer import main
    sys.exit(main())


class Accident:
    """What happens where."""

    def __init__(self, place: str, number: int, action: str) -> None:
        self.place, self.number, self.action = place, number, action
        self.round = 0

    def reach(self, place: str, round_number: int) -> None:
        if (place, round_number) != (self.place, self.number):
            return
        self.place = ""
        if self.action == "full":
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        else:
            os.kill(os.getpid(), signal.Signals[self.action])


def after(owner: type[Any], name: str, then: Callable[..., None]) -> None:
    """Call `then` with a method's own arguments after it."""
    original = getattr(owner, name)

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        then(*arguments)
        return result

    setattr(owner, name, method)


PINGS = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")


def prepare_server(accident: Accident) -> None:
    from anchorage.engine.events import RoundCommitted, RoundStarted, RunEvent, SiloChanged, StepBegan
    from anchorage.engine.store import journal
    from anchorage.engine.store.checkpoints import Checkpoints
    from anchorage.transport.grpc.calls import SERVER_OPTIONS
    from anchorage_server.status import StatusStore

    def told(event: RunEvent) -> None:
        match event:
            case RoundStarted(number):
                accident.round = number
                accident.reach("dispatched", number)
            case SiloChanged(_, state):
                accident.reach(state, accident.round)
            case StepBegan(name):
                accident.reach(name, accident.round)
            case RoundCommitted(record):
                accident.reach("committed", record.round)
            case _:
                pass

    def tear(self: journal.Journal, entry: journal.Entry) -> None:
        if (accident.place, accident.number) == ("torn", entry.record.round):
            line = journal._to_line(entry)
            os.write(self._handle, line[: len(line) // 2])
            accident.reach("torn", entry.record.round)
        append(self, entry)

    if accident.place == "pings":
        for at, (name, _) in enumerate(SERVER_OPTIONS):
            if name in PINGS:
                SERVER_OPTIONS[at] = (name, 1000 * accident.number)
    append, journal.Journal.append = journal.Journal.append, tear
    after(StatusStore, "__call__", told)
    after(Checkpoints, "write", lambda record, *_: accident.reach("renamed", record.round))


def prepare_agent(accident: Accident) -> None:
    from anchorage_silo import agent
    from anchorage_silo.mapped_buffers import MappedBuffers
    from anchorage_silo.outbound_gate import OutboundGate

    def kept(announcement: Any) -> None:
        if announcement is not None:
            accident.reach("kept", round_of(announcement))

    after(MappedBuffers, "keep", kept)
    after(OutboundGate, "announce", lambda announcement: accident.reach("announced", round_of(announcement)))
    if accident.place == "trained":
        command = (
            sys.executable,
            __file__,
            "anchorage_silo.trainer",
            accident.place,
            str(accident.number),
            accident.action,
        )
        agent.TrainerProcess = partial(agent.TrainerProcess, command=command)


def prepare_trainer(accident: Accident) -> None:
    from anchorage_silo import trainer

    build = trainer.build_learner

    def build_learner(setup: Any) -> Any:
        learner, samples, fingerprint = build(setup)
        # the trainer is started again by the agent, with the same arguments
        fell = setup.folder / "fell"

        def fall(task: Any, *_: Any) -> None:
            if task.round == accident.number and not fell.exists():
                fell.touch()
                accident.reach("trained", task.round)

        after(type(learner), "train", fall)
        return learner, samples, fingerprint

    trainer.build_learner = build_learner


def round_of(announcement: Any) -> int:
    return int(announcement.task.split(".")[0])


if __name__ == "__main__":
    main()
