"""The server and the agents as child processes: started as in a pod, terminated gracefully, and never left running."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from types import FrameType

from anchorage.api.errors import CATALOGUE, AnchorageError, Failure, commands
from anchorage.api.regular_files import open_regular

_FOLLOW_PARENT = (
    "import ctypes, os, sys; prctl = getattr(ctypes.CDLL(None), 'prctl', None); prctl and prctl(1, 15, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(143); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Asks the system (Linux) for SIGTERM when the runner dies, then becomes the process itself under the same id."""

_FAILURE_LINE = re.compile(r"^(ANC-\d{4}) [A-Za-z]+: (.*)$")
_LOG_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    """A child's process ended; `status` is as in `subprocess.Popen.returncode`."""

    child: str
    status: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """The runner received a signal to end."""

    number: int


ProcessEvent = Ended | Signalled


class InterruptError(BaseException):
    """The command was interrupted by a signal; like KeyboardInterrupt, nothing that handles failures takes it for one.

    Parameters
    ----------
    number : int
        The signal.
    advice : str
        How to go on.
    """

    def __init__(self, number: int, advice: str = "") -> None:
        super().__init__(f"ended by {signal.Signals(number).name}" + (f"; {advice}" if advice else ""))
        self.number = number


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with a function until the block ends."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Child:
    """One process of the run with its own child processes.

    Parameters
    ----------
    name : str
        ``server`` or the silo's name.
    arguments : sequence of str
        What the Python interpreter is given: ``-m``, a module and its options.
    folder : Path
        The process's working folder.
    log : Path
        Its standard output and error are appended here.
    happenings : SimpleQueue
        Told when the process ends.
    imported : str
        The module that it imports first, where it is prepared before it is started; empty: it cannot be.
    inherited : sequence of int
        Numbers of open files that the process inherits.
    environment : mapping or None
        The process's environment variables; None: those of this process.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        log: Path,
        happenings: "SimpleQueue[ProcessEvent]",
        imported: str = "",
        inherited: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._arguments = arguments
        self._imported = imported
        self._inherited = inherited
        self._environment = environment
        self._folder = folder
        self._events = happenings
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._begun, self._reaped = threading.Event(), threading.Event()

    @property
    def pid(self) -> int:
        """Process id of the last start, 0 before it."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and not self._reaped.is_set()

    def prepare(self) -> None:
        """Have a process import what it needs, and wait until it is started; errors as of `start`."""
        self._spawn(["-m", "fedctl.prepared", self._imported, *self._arguments[1:]], subprocess.PIPE)

    def start(self) -> None:
        """Start the process, or have the prepared one begin.

        It is in a process group of its own, so that Ctrl-C reaches the runner only.

        Raises
        ------
        AnchorageError
            Its folder or its log cannot be written.
        """
        if self._process is None or self._process.stdin is None or self._begun.is_set():
            self._spawn(self._arguments, subprocess.DEVNULL)
        else:
            with suppress(BrokenPipeError), self._process.stdin as waiting:  # its end is told as any other
                waiting.write(b"\n")
        self._begun.set()

    def _spawn(self, arguments: Sequence[str], stdin: int) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _FOLLOW_PARENT, str(os.getpid()), sys.executable, *arguments],
                    stdin=stdin,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env=self._environment,
                    pass_fds=self._inherited,
                    start_new_session=True,
                )
        except OSError as error:
            raise AnchorageError(
                commands.WORKDIR_UNUSABLE, f"the {self.name} process cannot be started: {error}"
            ) from error
        self._begun, self._reaped = threading.Event(), threading.Event()
        threading.Thread(target=self._wait, args=(self._process, self._begun, self._reaped), daemon=True).start()

    def _wait(self, process: "subprocess.Popen[bytes]", begun: threading.Event, reaped: threading.Event) -> None:
        status = process.wait()
        reaped.set()
        begun.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._events.put(Ended(self.name, status))

    def signal(self, number: int) -> None:
        """Send a signal to the process; SIGKILL goes to the whole group."""
        if self._process is None or not self.alive:
            return
        self._begun.set()  # one that was prepared alone ends as well
        try:
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)
        except ProcessLookupError:
            pass

    def ended_within(self, seconds: float) -> bool:
        """Wait for the process to end and return whether it did."""
        return self._process is None or self._reaped.wait(max(0.0, seconds))

    def wait(self) -> int:
        """Wait for the process to end and return its status, 0 if it was never started."""
        if self._process is None:
            return 0
        self._reaped.wait()
        return self._process.returncode

    def failure(self, status: int) -> AnchorageError:
        """Return why the process ended, from the last failure in its log since it was started."""
        line = self._last_line(_FAILURE_LINE)
        if line is not None:
            code, message = line
            known: Failure | None = CATALOGUE.get(code)
            if known is not None:
                return AnchorageError(known, message if self.name == "server" else f"silo {self.name}: {message}")
        return AnchorageError(
            commands.PROCESS_DIED, f"the {self.name} process {_how(status)}; {self._last_words()} ({self.log})"
        )

    def _last_line(self, pattern: re.Pattern[str]) -> tuple[str, str] | None:
        for line in reversed(self._tail()):
            match = pattern.match(line)
            if match:
                return match[1], match[2]
        return None

    def _last_words(self) -> str:
        lines = [line for line in self._tail() if line.strip()]
        return f"last line of its log: {lines[-1].strip()[:300]}" if lines else "it wrote nothing"

    def _tail(self) -> list[str]:
        with open_regular(self.log) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def end_all(
    children: Iterable[Child], grace_seconds: float, number: signal.Signals = signal.SIGTERM
) -> Sequence[Child]:
    """Terminate processes: a signal to all, time to finish, then SIGKILL.

    Parameters
    ----------
    children : iterable of Child
        Those that ended already are left alone.
    grace_seconds : float
        How long all of them together have between the signal and SIGKILL.
    number : Signals
        The signal.

    Returns
    -------
    sequence of Child
        Those that had to be killed.
    """
    alive = [child for child in children if child.alive]
    for child in alive:
        child.signal(number)
    deadline = monotonic() + grace_seconds
    killed = [child for child in alive if not child.ended_within(deadline - monotonic())]
    for child in killed:
        child.signal(signal.SIGKILL)
    for child in killed:
        child.ended_within(10.0)
    return killed
