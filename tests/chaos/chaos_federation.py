"""A federation of real processes on loopback with mutual TLS, and what must hold of it whatever happens."""

import json
import os
import queue
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import federation_processes
import psutil
import yaml
from chaos_end import PATIENCE_SECONDS, check_end
from chaos_inside import CLOCK, DISK, NOON, WRONG
from chaos_link import Link
from chaos_memory import Memory
from chaos_network import NAME, Network
from chaos_plan import SILOS
from chaos_tracking import Tracking
from chaos_waits import holds_at_last, holds_within
from federation_documents import null_study
from federation_in_process import null_step
from federation_processes import WITHOUT_MLFLOW, Process, Site

from anchorage.engine.store.journal import read_journal
from fedctl.configurations import LocalSilo, write_server_config, write_silo_config

ENDLESS = 1_000_000
"""Rounds of a federation that the driver ends."""
STATUS_ANSWERS = 200
"""Answers of a server, a poll apart, among which the status must tell what is so: 10 s, and more where the machine is busy."""
TRACKED_RATE = 2 << 20
"""Bytes per second, each way, of links of a federation whose results go to MLflow: rounds that are not faster than that takes them."""
federation_processes.WAIT_SECONDS = PATIENCE_SECONDS
GIVE_UP_SECONDS = 45.0
"""Time without a round after which a damaged file that keeps a federation from its work is restored."""
SLOWER = 8
"""So many times as long as at its first start may a federation take to be at work again, where that is more than the times above."""
DISK_MIB = 96
SILO_DISK_MIB = 24
MARK = "ANCHORAGE_CHAOS"
"""Environment variable by which processes are known as this driver's."""
KILLED = -signal.SIGKILL


class BrokenError(Exception):
    """A federation does not come back; its episode is over."""


class Federation(Site):
    """A federation of null trainers, each behind a link of its own.

    Parameters
    ----------
    folder : Path
        Of its own.
    found : Counter
        What is counted, by name; `broken` has a line for everything that must not be.
    network : Network or None
        That of this process, where it has its own.
    tracked : bool
        Whether the results go to an MLflow; its rounds are made slower than that.
    """

    def __init__(
        self, folder: Path, findings: Counter[str], broken: list[str], network: Network | None, *, tracked: bool
    ) -> None:
        self.tracking = Tracking(folder / "mlflow") if tracked else None
        where = {"tracking": {"uri": self.tracking.uri}} if self.tracking is not None else {}
        super().__init__(null_study(folder, silos=len(SILOS), rounds=ENDLESS, **where))
        if tracked:
            shutil.rmtree(self.root / "no-mlflow" / "mlflow")
        self.folder, self.findings, self.broken, self.network = folder, findings, broken, network
        scratch = folder / "tmp"
        scratch.mkdir()
        self.scratch = scratch
        self.environment |= {MARK: str(folder), "TMPDIR": str(scratch), "no_proxy": f"localhost,127.0.0.1,{NAME}"}
        self._mounted: list[Path] = []
        self.disk = self._mount(self.workdir.server, DISK_MIB)
        for silo in SILOS:
            (state := self.workdir.silo(silo) / "state").mkdir(parents=True)
            if self.disk:
                self._mount(state, SILO_DISK_MIB)
        for whose in ("server", *SILOS):
            self.set_clock(whose, 0)
            self.set_disk(whose, 0)
        self.memory = Memory.enter()
        self.limited = ""
        self.killable: set[int] = set()
        (self.root / "no-mlflow" / "sitecustomize.py").write_text(WRONG)
        self.current: Process | None = None
        self.agents: dict[str, Process] = {}
        self.links: dict[str, Link] = {}
        self.expected: set[int] = set()
        self.digests: dict[int, str] = {}
        self.backup: tuple[Path, bytes] | None = None
        self._read_to: dict[int, int] = {}
        self._slowest = 0.0

    def __exit__(self, *_: object) -> None:
        for process in self.left_over():
            with suppress(psutil.Error):
                process.kill()  # also what sends to MLflow, which goes on for minutes without its server
        if self.tracking is not None:
            self.tracking.close()
        super().__exit__()
        for link in self.links.values():
            link.close()
        if self.memory is not None:
            self.memory.close()
        for folder in self._mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a trainer may be ending

    def _mount(self, folder: Path, size: int) -> bool:
        """Make a folder a small disk of its own; False where this may not be done."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=700", "chaos", str(folder)]
        done = (
            os.geteuid() == 0
            and shutil.which("mount") is not None
            and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )
        self._mounted += [folder] if done else []
        return done

    def set_clock(self, whose: str, off: int) -> None:
        """Have the clock of the server, or of a silo's agent and trainer, be wrong by so many seconds, at once."""
        with (self.folder / f"clock-{whose}").open("ab") as file:
            file.truncate(NOON + off)

    def set_disk(self, whose: str, milliseconds: int) -> None:
        """Have everything that the server, or a silo's agent or trainer, writes take so much longer to be on its disk, at once."""
        with (self.folder / f"disk-{whose}").open("ab") as file:
            file.truncate(milliseconds)

    def _set_inside(self, whose: str) -> None:
        self.environment |= {CLOCK: str(self.folder / f"clock-{whose}"), DISK: str(self.folder / f"disk-{whose}")}

    def start_server(self) -> bool:
        """Start the server; False where it ends with a failure of the catalogue, which is counted."""
        config = write_server_config(self.workdir, self.root, self.endpoints or None)
        settings = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump({**settings, "names": [*settings["names"], NAME]}))
        self._set_inside("server")
        self.current = process = self.start("anchorage_server", config, ())
        try:
            process.wait_for("listening")
        except AssertionError:
            self._ended("server", process)
            return False
        except queue.Empty:
            raise BrokenError(f"the server neither listens nor ends: {process.lines[-3:]}") from None
        self.endpoints = json.loads(self.workdir.endpoints.read_text())
        for silo in SILOS:
            if silo not in self.links:
                self.links[silo] = Link(self.endpoints["silos"])
                self.links[silo].slow(TRACKED_RATE if self.tracking is not None else 0)
        return True

    def start_agent(self, silo: str) -> None:
        """Start an agent behind its link."""
        step, samples = null_step(silo)
        settings = {
            "labels": "All",
            "device": "cpu",
            "trainer": {"type": "Null", "step": str(step), "samples": samples},
        }
        address = self.links[silo].address
        if self.network is not None:
            address = address.replace("127.0.0.1", NAME)
        endpoints = {**self.endpoints, "silos": address}
        config = write_silo_config(self.workdir, LocalSilo(silo, settings), self.federation, self.root, endpoints)
        self._set_inside(silo)
        self.agents[silo] = self.start("anchorage_silo", config, ())

    def start(self, module: str, config: Path, accident: tuple[str | int, ...]) -> Process:
        """Start a process; one that is `limited` the kernel may kill."""
        process = super().start(module, config, accident)
        self.killable |= {process.pid} if self.limited == module else set()
        return process

    def within(self, module: str) -> Sequence[str]:
        """Start what is `limited` with little memory."""
        return self.memory.command if self.memory is not None and self.limited == module else ()

    def trainer(self, silo: str) -> int | None:
        """Return the id of a silo's trainer process, None where it has none now."""
        with suppress(psutil.Error):
            children = psutil.Process(self.agents[silo].pid).children()
            return next((child.pid for child in children if "anchorage_silo.trainer" in child.cmdline()), None)
        return None

    def kill(self, process: Process) -> None:
        """Kill a process; that it ends is no surprise then."""
        self.expected.add(process.pid)
        process.kill()

    def stop_all(self) -> None:
        """Kill everything at once, as a power cut would; the trainers end with their agents."""
        everything = [process for process in (self.current, *self.agents.values()) if process is not None]
        for process in everything:
            self.expected.add(process.pid)
            with suppress(ProcessLookupError):
                process.signal(signal.SIGKILL)
        for process in everything:
            process.end()
        self.until(lambda: not list(self.left_over()), PATIENCE_SECONDS, "trainers end with their agents")

    def start_all(self) -> None:
        """Start everything again; a damaged file that a server refuses is restored."""
        if not self.start_server():
            self.restore()
            if not self.start_server():
                raise BrokenError(f"the server does not start: {self._last_line(self.current)}")
        for silo in SILOS:
            self.start_agent(silo)

    def begin(self) -> None:
        """Start everything, and learn how long that takes on this machine."""
        began = time.monotonic()
        self.start_all()
        self.advance()
        self._slowest = time.monotonic() - began

    def restore(self) -> None:
        """Put a damaged file back as from a backup."""
        if self.backup is None:
            raise BrokenError(f"the server refuses what nobody damaged: {self._last_line(self.current)}")
        path, content = self.backup
        path.write_bytes(content)
        self.backup = None
        self.findings["restored_files"] += 1

    def tend(self) -> None:
        """Start again what has ended, as a cluster would."""
        if self.current is None or not self.current.running:
            self._ended("server", self.current)
            if not self.start_server() and not self.start_server():
                raise BrokenError(f"the server does not start: {self._last_line(self.current)}")
        for silo, agent in list(self.agents.items()):
            if not agent.running:
                if self._ended(f"agent {silo}", agent) and self.backup is not None:
                    self.restore()
                self.start_agent(silo)

    def tend_for(self, seconds: float) -> None:
        """Start again for so many seconds what ends."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.05)

    def advance(self, rounds: int = 2) -> None:
        """Wait for more rounds; a damaged file that keeps the federation from them is restored."""
        before = self.last_round()
        goal = before + rounds

        def further() -> bool:
            self.tend()
            return self.last_round() >= goal

        waits = max(GIVE_UP_SECONDS, SLOWER * self._slowest)
        if self.backup is not None and not self.holds(further, waits) and self.last_round() <= before:
            self.stop_all()
            self.restore()
            self.start_all()
        self.backup = None
        self.until(further, PATIENCE_SECONDS, f"round {goal} after {self.last_round()}", self.last_round)

    def last_round(self) -> int:
        """Return the last committed round, -1 without one."""
        with suppress(OSError):
            lines = self.workdir.journal.read_bytes()[-(1 << 16) :].splitlines(keepends=True)
            for line in reversed(lines):
                if line.endswith(b"}\n"):
                    with suppress(ValueError):
                        return int(json.loads(line)["round"])
        return -1

    def check_rounds(self, *, may_lose: int = 0) -> None:
        """See that what was committed is there as it was; a damaged store may have gone back, and then says so."""
        entries = read_journal(self.workdir.journal)
        rounds = {entry.record.round: entry.record for entry in entries}
        lost = self.digests.keys() - rounds.keys()
        if len(lost) > may_lose:
            self.findings["lost_rounds"] += len(lost)
            self.broken.append(f"rounds {sorted(lost)} are lost")
        for number, record in rounds.items():
            if self.digests.setdefault(number, record.digest) != record.digest:
                self.findings["changed_rounds"] += 1
                self.broken.append(f"round {number} is another one than it was")
            counted = [part.name for part in record.silos if part.state == "Counted"]
            if number and sorted(counted) != sorted(SILOS):
                self.findings["double_counted"] += 1
                self.broken.append(f"round {number} counts {counted}")

    def check_status(self) -> None:
        """See that the status tells of the last committed round in time."""
        committed = self.last_round()
        self.told(lambda status: status["round"] >= committed, f"round {committed}")

    def told(self, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
        """See that the status of a server at work tells something in time."""

        answers = 0

        def told_or_late() -> bool:
            nonlocal answers
            self.tend()
            with suppress(OSError, HTTPException):
                if holds(self.status()):
                    return True
                answers += 1
            return answers >= STATUS_ANSWERS

        if not self.holds(told_or_late, PATIENCE_SECONDS) or answers >= STATUS_ANSWERS:
            self.findings["late_status"] += 1
            self.broken.append(f"the status did not tell {what} in {answers} answers")

    def check_logs(self) -> None:
        """See that no process said that it has a defect, and count what they say of damage."""
        for process in self.processes:
            lines = process.lines[self._read_to.get(process.pid, 0) :]
            self._read_to[process.pid] = len(process.lines)
            self.findings["played_again"] += sum("is played again" in line for line in lines)
            defects = ("Traceback (most recent", "an exception in the trainer process")
            if any(defect in line for line in lines for defect in defects):
                self.findings["tracebacks"] += 1
                self.broken.append("traceback: " + " | ".join(lines[-12:]))

    def conclude(self) -> None:
        """Have the run end, and compare it with one that nothing disturbed."""
        assert self.current is not None
        self.expected.add(self.current.pid)
        self.current.signal(signal.SIGTERM)
        self._await_end(self.current)
        self.current.end()
        rounds = self.last_round() + 2
        documents = list(yaml.safe_load_all(self.workdir.federation.read_text()))
        documents[0]["spec"]["rounds"] = rounds
        self.workdir.federation.write_text(yaml.safe_dump_all(documents))
        if not self.start_server():
            raise BrokenError(f"the server does not start: {self._last_line(self.current)}")
        self._await_end(self.current)
        if (status := self.current.end()) != WITHOUT_MLFLOW:  # or without these models, which have no classifier
            self.broken.append(f"the run ended with {status}: {self._last_line(self.current)}")
        for silo, agent in self.agents.items():
            self._await_end(agent)
            if (status := agent.end()) != 0:
                self.broken.append(f"agent {silo} ended with {status}: {self._last_line(agent)}")
        self.check_rounds()
        self.check_logs()
        check_end(self, rounds)

    def _await_end(self, process: Process) -> None:
        self.until(lambda: not process.running, PATIENCE_SECONDS, "a process ends")

    def left_over(self) -> Iterator[psutil.Process]:
        """Yield the processes of this federation that run."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def _ended(self, who: str, process: Process | None) -> bool:
        """Count how a process ended that was not ended by the driver; only a failure of the catalogue explains it."""
        if process is None or process.pid in self.expected:
            return False
        status = process.end()
        self.expected.add(process.pid)
        line = self._last_line(process)
        if status == KILLED and process.pid in self.killable:
            return True
        if line.startswith("ANC-"):
            self.findings[f"ended with {line[:8]}"] += 1
        else:
            self.findings["unexplained_ends"] += 1
            self.broken.append(f"{who} ended with {status}: {' | '.join(process.lines[-12:])}")
        return True

    @staticmethod
    def _last_line(process: Process | None) -> str:
        return process.lines[-1] if process is not None and process.lines else ""

    def until(
        self, holds: Callable[[], bool], seconds: float, what: str, progress: Callable[[], object] = lambda: None
    ) -> None:
        """Wait for something that must come, as long as there is progress within so many seconds."""
        seconds = max(seconds, SLOWER * self._slowest)
        if not holds_at_last(holds, seconds, progress):
            running = (process for process in (self.current, *self.agents.values()) if process is not None)
            tails = {str(process.pid): process.lines[-3:] for process in running}
            raise BrokenError(f"waited {seconds:g} s in vain for {what}: {tails}")

    holds = staticmethod(holds_within)
