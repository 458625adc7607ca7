"""A server that is hostile to an honest hospital's agent process: it has good certificates, and says what it likes."""

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from attack_scripts import Place, held, refused, script
from attacked_federation import CONTROL, DEFECTS, command
from silo_site import LAYOUT, Agent, Site, audit_of

from anchorage.api.errors import rounds, silo, transfer
from anchorage.transport.messages import Dismissed, Order, Permit, Task, TaskFailed, TaskKind
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.limits import PLAYED_AGAIN

PERMITS = 20_000
QUESTIONS = 200
MOST_GROWTH = 64
"""MB by which a flood of orders may make an agent grow."""
_EVIL = "\x1b[2J\x1b]0;owned\x07\r\nANC-9999 Forged: \x9b31m\u202e"


def model_of(value: float, layout: Layout = LAYOUT) -> ModelBytes:
    """Return a model whose floats are all the same."""
    kinds = {"I64": np.int64, "F32": np.float32}
    arrays = {t.name: np.full(t.shape, 1 if t.dtype == "I64" else value, kinds[t.dtype]) for t in layout.tensors}
    return ModelBytes.from_arrays(layout, arrays)


class HostileServer(Site):
    """The server's end of the link, and an agent of silo a; `policy` is the hospital's, where it is not the one that trusts."""

    def __init__(self, folder: Path, policy: str = "", **values: Any) -> None:
        super().__init__(folder)
        if policy:
            (folder / "policy.yaml").write_text(policy)
            values["policy"] = str(folder / "policy.yaml")
        self.config = self.configuration("a", **values)
        self.agents: list[Agent] = []

    def agent(self) -> Agent:
        """Start the agent."""
        self.agents.append(Agent(self.config))
        return self.agents[-1]

    def order(self, *orders: Order) -> None:
        """Send orders, whatever they are."""
        session = self.link._tasks_of("a").session
        assert session is not None, "it has joined"
        for order in orders:
            session.orders.put(order)

    def code_of(self, task: Task) -> str:
        """Give the agent a task, and return with which code it refuses it."""
        self.link.assign("a", task)
        while (failed := self.event(TaskFailed)).task != task.id:
            pass
        return str(failed.code)

    def goes_on(self, number: int) -> str:
        """See that the agent plays a round as if nothing had been."""
        task = self.assign("a", model_of(number), number)
        announcement, update = self.collect("a", task)
        expected = model_of(number + 0.5)
        held(
            announcement.update is not None and announcement.update.digest == expected.digest,
            "the update is right",
            update[:32],
        )
        self.link.dismiss("a", task.id, "counted")
        self.check_logs()
        return f"round {number} is played"

    def check_logs(self) -> None:
        """See that no agent has a defect."""
        defects = [line for agent in self.agents for line in agent.lines if any(defect in line for defect in DEFECTS)]
        held(not defects, "the agent has no defect", defects[:3])

    def kinds(self) -> list[str]:
        """Return what left the hospital, as its audit log has it."""
        return [line["kind"] for line in audit_of(self.config)]

    def restart(self, run: str | None = None) -> None:
        """Start the server's end anew, with another description of the run."""
        self.stop_link()
        self._welcome = self._welcome if run is None else run
        self.start_link()

    def __enter__(self) -> "HostileServer":
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            agent.close()
        self.close()


@script(place=Place.SEPARATE)
def model_of_another_length(folder: Path) -> str:
    """Of nothing, of less and more than the run has, and of the right length but for what comes behind it: no byte of them is received."""
    with HostileServer(folder) as server:
        server.agent()
        server.joined()
        codes = []
        for number, floats in enumerate((0, 1, 699_999, 700_001, 7_000_000), 1):
            model = model_of(1, Layout.of([("count", "I64", (2,)), ("weight", "F32", (floats,))]))
            server.link.offer(model)
            codes.append(server.code_of(server.task(model, number)))
        behind = Layout.of([("pool", "U8", (1 << 20,))])
        full_model = model_of(
            1, Layout.of([*((t.name, t.dtype, t.shape) for t in LAYOUT.tensors), ("pool", "F32", (1 << 18,))])
        )
        server.link.offer(full_model)
        codes.append(server.code_of(replace(server.task(full_model, 9), behind=behind)))
        held(set(codes) == {transfer.MALFORMED_MESSAGE.code}, "each is refused", codes)
        held(server.link.traffic() == (0, 0), "nothing is received or sent", server.link.traffic())
        return f"{codes[0]}, 0 bytes received; {server.goes_on(10)}"


@script(place=Place.SEPARATE)
def model_of_no_numbers(folder: Path) -> str:
    """A model of NaN, to have an update that noise does not change."""
    with HostileServer(folder, 'clipNorm: "1"\nnoiseStd: "0.1"\nminimumSamples: 1\n') as server:
        server.agent()
        server.joined()
        model = model_of(float("nan"))
        server.link.offer(model)
        code = refused(server.code_of(server.task(model, 1)), rounds.NON_FINITE_UPDATE.code)
        held("update" not in server.kinds() and "announce" not in server.kinds(), "nothing left", server.kinds())
        server.check_logs()
        return f"{code}, nothing left"


@script(place=Place.SEPARATE)
def tasks_that_were_not_reviewed(folder: Path) -> str:
    """Scores of models, steps of secure aggregation, a hundred trainings for one update: the run's description has none of them."""
    with HostileServer(folder) as server:
        server.agent()
        server.joined()
        model, codes = model_of(1), []
        server.link.offer(model)
        question = server.task(model, 1, TaskKind.EVALUATE)
        asked = [question, replace(question, id="1.score", held_out=True)]
        asked += [Task(f"1.{kind}", kind, 1, Manifest("", 0, ())) for kind in TaskKind if kind.step]
        asked += [replace(server.task(model, 1), id="1.often", repetitions=100)]
        asked += [replace(server.task(model, 1), id="1.encoded", model_encoded=True)]
        for task in asked:
            codes.append(server.code_of(task))
        expected = {silo.ROUNDS_USED_UP.code, silo.SECURE_AGGREGATION_REFUSED.code, transfer.MALFORMED_MESSAGE.code}
        held(set(codes) == expected, "each is refused", codes)
        held(set(server.kinds()) == {"enrol", "join", "failure"}, "nothing left", server.kinds())
        return f"{', '.join(sorted(expected))}; {server.goes_on(2)}"


@script(place=Place.SEPARATE)
def more_updates_than_reviewed(folder: Path) -> str:
    """Under new names of tasks, over models that hardly change, and again after the agent's end."""
    with HostileServer(folder) as server:
        server.describe(server.run.model_copy(update={"rounds": 1}))
        server.restart()
        server.config = server.configuration("a")
        server.agent()
        server.joined()
        most = 1 + PLAYED_AGAIN
        for number in range(most):
            server.goes_on(1 + number)
        codes = [server.code_of(replace(server.task(model_of(1), 1), id="1.again"))]
        server.agents[-1].signal(signal.SIGKILL)
        server.agents[-1].wait()
        server.agent()
        server.joined()
        codes.append(server.code_of(replace(server.task(model_of(2), 2), id="2.again")))
        held(server.kinds().count("update") == most, f"{most} updates left", server.kinds())
        server.check_logs()
        held(set(codes) == {silo.ROUNDS_USED_UP.code}, "further ones are refused", codes)
        return f"{codes[0]} after {most} updates, also after a restart"


@script(place=Place.SEPARATE)
def run_changed_after_approval(folder: Path) -> str:
    """The hospital approved one run; the server comes back with others: one that scores models, one that is no description at all."""
    with HostileServer(folder, 'requireApproval: true\nrelativeNoise: "0"\n') as server:
        agent = server.agent()
        agent.await_line(silo.APPROVAL_NEEDED.code)
        review = command("anchorage_silo", "review", "-o", "json", "--config", server.config, folder=folder)
        digest = re.search(r'"digest": "([0-9a-f]{64})"', review.stdout)
        assert digest is not None, review
        command("anchorage_silo", "approve", digest[1], "--config", server.config, folder=folder)
        server.joined()
        on = server.goes_on(1)
        codes = []
        for number, text in enumerate(
            (server.run.model_copy(update={"rounds": 10**6, "silo_percent": 50}).to_json(), "{"), 2
        ):
            server.restart(text)
            server.joined()
            server.link.offer(model_of(number))
            codes.append(server.code_of(server.task(model_of(number), number, TaskKind.EVALUATE)))
            codes.append(server.code_of(replace(server.task(model_of(number), number), model_encoded=True)))
            on = server.goes_on(number)
            held(
                codes == [silo.ROUNDS_USED_UP.code, transfer.MALFORMED_MESSAGE.code] * (number - 1),
                "each is refused",
                codes,
            )
        return f"{', '.join(codes[:2])}; {on}"


@script(place=Place.SEPARATE)
def permits_without_an_update(folder: Path) -> str:
    """For tasks that there are not, or not any more: nothing is sent."""
    with HostileServer(folder) as server:
        server.agent()
        server.joined()
        server.order(*(Permit(task) for task in ("", "1.train", "../../state/audit.jsonl", "1.train.00000000")))
        on = server.goes_on(1)
        sent = server.link.traffic()[0]
        server.order(Permit(server.task(model_of(1), 1).id))
        server.goes_on(2)
        held(server.link.traffic()[0] == 2 * sent == 2 * LAYOUT.nbytes, "two updates were sent", server.link.traffic())
        held(server.kinds().count("update") == 2, "the audit log has two", server.kinds())
        return f"nothing is sent; {on}"


@script(place=Place.SEPARATE)
def flood_of_orders(folder: Path) -> str:
    """Many orders about nothing, and many models to score: each is refused, and the agent does not grow."""
    with HostileServer(folder) as server:
        agent = server.agent()
        server.joined()
        on = server.goes_on(1)
        process = psutil.Process(agent.process.pid)
        before, model = process.memory_info().rss, model_of(1)
        server.order(
            *(order for n in range(PERMITS) for order in (Permit(f"{n}.train"), Dismissed(f"{n}.train", "x" * 100)))
        )
        for number in range(QUESTIONS):
            server.link.assign("a", replace(server.task(model, 1, TaskKind.EVALUATE), id=f"{number}.evaluate"))
        codes = {server.event(TaskFailed).code for _ in range(QUESTIONS)}
        held(codes <= {silo.ROUNDS_USED_UP.code, silo.TOO_MANY_TASKS.code}, "each question is refused", codes)
        on = server.goes_on(2)
        grown = (process.memory_info().rss - before) / 2**20
        held(grown < MOST_GROWTH, f"the agent grows by less than {MOST_GROWTH} MB", grown)
        return f"{', '.join(sorted(codes))}, {grown:.0f} MB; {on}"


@script(place=Place.SEPARATE)
def escapes_to_a_hospital(folder: Path) -> str:
    """Escape sequences and ends of lines in names of tasks and in reasons, for who reads the agent's log."""
    with HostileServer(folder) as server:
        agent = server.agent()
        server.joined()
        code = server.code_of(replace(server.task(model_of(1), 1, TaskKind.EVALUATE), id="1." + _EVIL))
        server.order(Dismissed("1." + _EVIL, _EVIL))
        server.link.expel("a", _EVIL)
        agent.wait()
        held(transfer.SILO_NOT_ADMITTED.code in agent.lines[-1], "it ends as one that is no member", agent.lines[-1])
        held(
            not any(CONTROL.search(line) for line in agent.lines),
            "no control character in the agent's log",
            agent.lines[-3:],
        )
        held(not any(line.startswith("ANC-9999") for line in agent.lines), "no line of the server's", agent.lines[-3:])
        return f"{code}, shown as text"


@script(place=Place.SEPARATE)
def orders_of_no_kind(folder: Path) -> str:
    """A task of a kind that does not exist: the agent ends, and says why."""
    with HostileServer(folder) as server:
        agent = server.agent()
        server.joined()
        server.link.assign("a", replace(server.task(model_of(1), 1), kind="SendImages"))  # type: ignore[arg-type]
        status = agent.wait()
        code = refused(agent.lines[-1].partition(" ")[0], transfer.MALFORMED_MESSAGE.code)
        server.check_logs()
        held(set(server.kinds()) == {"enrol", "join"}, "nothing left", server.kinds())
        return f"{code}, exit status {status}"
