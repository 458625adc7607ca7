"""Supervises a federation's processes: one server and one agent per silo, restarted when they fail, and ended together."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType
from typing import Any, Protocol

from anchorage.api.errors import AnchorageError, commands, learning
from anchorage.api.fork_server import NUMBER
from anchorage.transport.retry import RetryPolicy
from fedctl.processes import Child, Ended, InterruptError, ProcessEvent, Signalled, end_all, signals_to
from fedctl.workdir import Workdir, read_json

MOST_RESTARTS = 5
"""Restarts of one process between two committed rounds."""
RESTART = RetryPolicy(0.5)
"""Pauses before a process is restarted."""
READY_SECONDS = 300.0
"""How long the server may take until it listens."""
LEAVE_SECONDS = 20.0
"""How long agents have to end by themselves once the run is over."""
GRACE_SECONDS = 20.0
"""How long processes have between SIGTERM and SIGKILL."""
AGENT = "anchorage_silo.agent"
"""What agents import while the server starts."""
HOPELESS_EXIT_CODES = (2, 3)
"""Documents and data: what an agent refuses now, it refuses after a restart. So it is with a mistake in a piece of the method."""


class Watcher(Protocol):
    """Receives the events of a run, in the runner's thread."""

    def started(self, name: str, pid: int) -> None:
        """A process was started."""

    def refresh(self, endpoints: Mapping[str, str] | None, processes: Mapping[str, str]) -> int:
        """Called at intervals; returns the last committed round, -1 before the first.

        `endpoints` is what the server wrote (None until it is ready); `processes` the state of every process.
        """

    def say(self, line: str) -> None:
        """Show a message to people."""


@dataclass(frozen=True)
class Plan:
    """The processes to start."""

    workdir: Workdir
    """The folder of the run."""
    silos: Sequence[str]
    """Names of the silos whose agents run here."""
    min_silos: int
    """Quorum: with fewer agents the run is given up."""
    server_config: Callable[[Mapping[str, str] | None], Path]
    """``server_config(endpoints)`` writes the server's configuration, with the addresses of its last start or None, and returns its path."""
    silo_config: Callable[[str, Mapping[str, str]], object]
    """``silo_config(silo, endpoints)`` writes an agent's configuration to `workdir.silo_config(silo)`."""
    fork_server: int | None = None
    """File number of the socket by which agents have their trainers forked; None: each trainer imports for itself."""
    look_seconds: float = 0.5
    """Time between two looks."""


@dataclass
class Supervisor:
    """Runs the processes of a plan to their end."""

    plan: Plan
    """The processes to start."""
    watcher: Watcher
    """Who is told."""
    _events: "SimpleQueue[ProcessEvent]" = field(default_factory=SimpleQueue)
    _children: dict[str, Child] = field(default_factory=dict)
    _processes: dict[str, str] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _given_up: dict[str, AnchorageError] = field(default_factory=dict)
    _endpoints: dict[str, Any] | None = None
    _round: int = -1
    _signals: list[int] = field(default_factory=list)

    def play(self) -> None:
        """Start all processes, restart failed ones, and return when the server has ended successfully; no process is left running.

        Raises
        ------
        AnchorageError
            A process gave up, or too few agents are left.
        InterruptError
            A signal came.
        """
        workdir = self.plan.workdir
        with signals_to(self._handle_signal):
            try:
                workdir.endpoints.unlink(missing_ok=True)
                self._add("server", "anchorage_server", self.plan.server_config(None), workdir.server)
                self._start(self._children["server"])
                for silo in self.plan.silos:
                    config, folder = workdir.silo_config(silo), workdir.silo(silo)
                    self._add(silo, "anchorage_silo", config, folder, AGENT, self.plan.fork_server)
                    self._children[silo].prepare()
                self._watch()
                self._await_agents()
            finally:
                by_hand = self._signals[:1] == [signal.SIGINT]
                number = signal.SIGINT if by_hand else signal.SIGTERM  # so that they say what happened
                killed = end_all(self._children.values(), GRACE_SECONDS, number)
                if killed:
                    self.watcher.say(f"killed after {GRACE_SECONDS:g} s: {', '.join(child.name for child in killed)}")

    def _add(
        self, name: str, module: str, config: Path, folder: Path, imported: str = "", fork_server: int | None = None
    ) -> None:
        self._children[name] = Child(
            name,
            ["-m", module, "--config", str(config)],
            folder,
            self.plan.workdir.log(name),
            self._events,
            imported,
            inherited=() if fork_server is None else (fork_server,),
            environment=None if fork_server is None else {**os.environ, NUMBER: str(fork_server)},
        )

    def _start(self, child: Child) -> None:
        child.start()
        self._processes[child.name] = "starting" if child.name == "server" and self._endpoints is None else "running"
        self.watcher.started(child.name, child.pid)

    def _watch(self) -> None:
        ready_by = monotonic() + READY_SECONDS
        while True:
            match self._next():
                case Signalled(number):
                    raise InterruptError(number)
                case Ended("server", 0):
                    self._processes["server"] = "ended"
                    return
                case Ended(name, 0):
                    self._processes[name] = "ended"
                case Ended(name, status):
                    self._handle_exit(self._children[name], status)
                case None:
                    pass
            if self._endpoints is None:
                self._begin_agents(ready_by)
            self._restart_due()
            self._note_progress()

    def _next(self) -> ProcessEvent | None:
        due = min(self._due.values(), default=monotonic() + self.plan.look_seconds)
        try:
            return self._events.get(timeout=max(0.0, min(due - monotonic(), self.plan.look_seconds)))
        except Empty:
            return None

    def _begin_agents(self, ready_by: float) -> None:
        self._endpoints = read_json(self.plan.workdir.endpoints)
        if self._endpoints is None:
            if monotonic() > ready_by:
                log = self.plan.workdir.log("server")
                raise AnchorageError(
                    commands.STATUS_UNREACHABLE, f"the server does not listen after {READY_SECONDS:g} s; see {log}"
                )
            return
        self._processes["server"] = "running"
        for silo in self.plan.silos:
            self.plan.silo_config(silo, self._endpoints)
            self._start(self._children[silo])

    def _handle_exit(self, child: Child, status: int) -> None:
        failure = child.failure(status)
        self._processes[child.name] = "ended"
        own_reason = failure.failure is not commands.PROCESS_DIED and failure.failure.exit_code != 70
        hopeless = failure.failure is learning.PIECE_WRONG or failure.failure.exit_code in HOPELESS_EXIT_CODES
        if (child.name == "server" and own_reason) or hopeless:
            raise failure
        if child.restarts < MOST_RESTARTS:
            child.restarts += 1
            wait = RESTART.pause(child.restarts)
            self._due[child.name] = monotonic() + wait
            self._processes[child.name] = "restarting"
            self.watcher.say(f"{failure}; restarting in {wait:g} s ({child.restarts} of {MOST_RESTARTS})")
            return
        self._given_up[child.name] = failure
        silos_left = len(self.plan.silos) - len(self._given_up)
        if child.name == "server" or silos_left < self.plan.min_silos:
            raise failure
        self.watcher.say(f"{failure}; given up, {silos_left} silos are left")

    def _restart_due(self) -> None:
        for name, due in list(self._due.items()):
            if due <= monotonic():
                del self._due[name]
                if name == "server":
                    self.plan.server_config(self._endpoints)
                self._start(self._children[name])

    def _note_progress(self) -> None:
        committed = self.watcher.refresh(self._endpoints, self._processes)
        if committed > self._round:
            self._round = committed
            for child in self._children.values():
                child.restarts = 0

    def _await_agents(self) -> None:
        deadline = monotonic() + LEAVE_SECONDS
        for child in self._children.values():
            child.ended_within(deadline - monotonic())

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: the first ends the run, a second one kills the processes at once."""
        self._signals.append(number)
        if len(self._signals) == 1:
            self._events.put(Signalled(number))
            return
        for child in self._children.values():
            child.signal(signal.SIGKILL)
