"""How each kind of fault is injected, and what is expected of the federation then."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from chaos_end import PATIENCE_SECONDS, check_sent
from chaos_federation import Federation
from chaos_memory import taken
from chaos_plan import TRACKED, Fault
from federation_processes import Process

from anchorage.transport.files import write_atomically
from anchorage.transport.pki import Authority, SigningRequest, load_key, silo_uri
from anchorage.transport.pki.credentials import read_certificate

MIB = 1 << 20
HOUR = 3600
NAMED = {"disk-full": "ANC-3101", "read-only-disk": "ANC-3102", "read-only-disk-silo": "ANC-2202"}
"""Failures by which a server, or an agent, names what is wrong with its disk."""
LASTS_SECONDS = 30 * 24 * HOUR
"""What a certificate has left that is not about to end."""
NEED_DISKS = ("disk-full", "disk-full-silo", "read-only-disk", "read-only-disk-silo")
NEED_NETWORK = ("packet-loss", "no-name")


def play(federation: Federation, wave: list[Fault]) -> None:
    """Inject a wave of faults, have the federation come back, and check what must hold."""
    lacking = (() if federation.disk else NEED_DISKS) + (() if federation.network else NEED_NETWORK)
    lacking += () if federation.memory else ("memory-limit",)
    for fault in wave:
        federation.findings[f"{'skipped' if fault.kind in lacking else 'injected'} {fault.kind}"] += 1
    wave = [fault for fault in wave if fault.kind not in lacking]
    if not wave:
        return
    kind = wave[0].kind
    may_lose = 1 if kind in ("flip-byte", "damage-checkpoint", "truncate-journal") else 0
    if kind in STOPPING:
        time.sleep(wave[0].delay)
        STOPPING[kind](federation, wave[0])
    else:
        _live(federation, wave)
    federation.advance()
    federation.check_rounds(may_lose=may_lose)
    federation.check_status()
    federation.check_logs()


def _live(federation: Federation, wave: list[Fault]) -> None:
    ends = []
    for fault in wave:
        time.sleep(fault.delay)
        ends.append((time.monotonic() + fault.seconds, LIVE[fault.kind](federation, fault)))
    for end, mend in sorted(ends, key=lambda pair: pair[0]):
        if mend is not None:
            time.sleep(max(0.0, end - time.monotonic()))
            mend()


Mend = Callable[[], None] | None


def _kill_server(federation: Federation, fault: Fault) -> Mend:
    assert federation.current is not None
    federation.kill(federation.current)
    return None


def _kill_agent(federation: Federation, fault: Fault) -> Mend:
    federation.kill(federation.agents[fault.silo])
    return None


def _kill_trainer(federation: Federation, fault: Fault) -> Mend:
    _signal(federation.trainer(fault.silo), signal.SIGKILL)
    return None


def _pause_server(federation: Federation, fault: Fault) -> Mend:
    assert federation.current is not None
    return _pause(federation.current.pid)


def _pause_agent(federation: Federation, fault: Fault) -> Mend:
    return _pause(federation.agents[fault.silo].pid)


def _pause_trainer(federation: Federation, fault: Fault) -> Mend:
    return _pause(federation.trainer(fault.silo))


def _pause(pid: int | None) -> Mend:
    _signal(pid, signal.SIGSTOP)
    return lambda: _signal(pid, signal.SIGCONT)


def _signal(pid: int | None, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, number)


def _cut(federation: Federation, fault: Fault) -> Mend:
    link = federation.links[fault.silo]
    link.cut(int(fault.share * 4 * MIB))
    return link.mend


def _half_open(federation: Federation, fault: Fault) -> Mend:
    federation.links[fault.silo].half_open("server" if fault.kind == "half-open-connection" else "agent")
    return None


def _no_name(federation: Federation, fault: Fault) -> Mend:
    """Have the server's name be unknown, and an agent look it up."""
    assert federation.network is not None
    federation.network.forget()
    federation.links[fault.silo].cut(0)
    return federation.network.know


def _slow(federation: Federation, fault: Fault) -> Mend:
    link = federation.links[fault.silo]
    link.slow()
    return link.mend


def _block(federation: Federation, fault: Fault) -> Mend:
    link = federation.links[fault.silo]
    link.block()
    return link.mend


LIVE: dict[str, Callable[[Federation, Fault], Mend]] = {
    "kill-server": _kill_server,
    "kill-agent": _kill_agent,
    "kill-trainer": _kill_trainer,
    "pause-server": _pause_server,
    "pause-agent": _pause_agent,
    "pause-trainer": _pause_trainer,
    "cut-connection": _cut,
    "half-open-connection": _half_open,
    "half-open-server": _half_open,
    "no-name": _no_name,
    "slow-link": _slow,
    "no-link": _block,
}


def _kill_everything(federation: Federation, fault: Fault) -> None:
    federation.stop_all()
    federation.start_all()


def _flip_byte(federation: Federation, fault: Fault) -> None:
    """Flip a bit of a file that the stopped processes left."""
    federation.stop_all()
    owned = [federation.workdir.server, *(federation.workdir.silo(silo) / "state" for silo in federation.agents)]
    kinds: dict[str, list[Path]] = {}
    for folder in owned:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
            kinds.setdefault(re.sub("[0-9a-f]*[0-9][0-9a-f]*", "N", path.name), []).append(path)
    kind = sorted(kinds)[int(fault.share * len(kinds))]
    chance = int(fault.seconds * 1e6)
    federation.findings[f"flipped in {kind}"] += 1
    _flip(federation, fault, kinds[kind][chance % len(kinds[kind])])


def _damage_checkpoint(federation: Federation, fault: Fault) -> None:
    """Flip a bit of the newest checkpoint."""
    federation.stop_all()
    _flip(federation, fault, max(federation.workdir.server.glob("checkpoints/round-*")))


def _flip(federation: Federation, fault: Fault, path: Path) -> None:
    content = path.read_bytes()
    at = int(fault.seconds * 1e6) % len(content)
    federation.backup = (path, content)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1 << int(fault.delay * 16)]) + content[at + 1 :])
    federation.start_all()


def _truncate_journal(federation: Federation, fault: Fault) -> None:
    """Cut the journal somewhere in its last three lines."""
    federation.stop_all()
    path = federation.workdir.journal
    content = path.read_bytes()
    tail = sum(map(len, content.splitlines(keepends=True)[-3:]))
    federation.backup = (path, content)
    path.write_bytes(content[: len(content) - 1 - int(fault.share * tail)])
    federation.start_all()


def _fill_disk(federation: Federation, fault: Fault) -> None:
    """Fill the server's disk until the server ends for it, or does without more room for a while."""
    filler = federation.workdir.server / "filler"
    process = federation.current
    assert process is not None
    try:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(MIB)):
                pass
        federation.holds(lambda: not process.running, PATIENCE_SECONDS / 30)
    finally:
        filler.unlink(missing_ok=True)
    if not process.running:
        _expect_failure(federation, process, "disk-full")


def _fill_silo(federation: Federation, fault: Fault) -> None:
    """Fill a silo's disk for a while; an agent that ends for it is started again all the same."""
    filler = federation.workdir.silo(fault.silo) / "state" / "filler"
    try:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(MIB)):
                pass
        federation.tend_for(fault.seconds)
    finally:
        filler.unlink(missing_ok=True)


def _clock_jump(federation: Federation, fault: Fault) -> None:
    """Have the clock of the server or of a silo be an hour off while it runs, and also when it starts; then put it right."""
    whose = fault.silo if fault.share < 0.75 else "server"
    federation.set_clock(whose, HOUR if fault.share * 100 % 2 < 1 else -HOUR)
    federation.tend_for(fault.seconds / 2)
    if whose != "server":
        federation.kill(federation.agents[whose])
        federation.tend_for(fault.seconds)
        federation.set_clock(whose, 0)
        return
    assert federation.current is not None
    federation.kill(federation.current)
    if federation.start_server():  # else its authority's certificate is not valid yet
        time.sleep(fault.seconds)
        federation.kill(federation.current)  # the certificate that it gave itself is not valid yet for others
    federation.set_clock(whose, 0)


def _read_only(federation: Federation, fault: Fault) -> None:
    """Make the server's disk read-only while no server runs, and start one."""
    assert federation.current is not None
    federation.kill(federation.current)
    folder = str(federation.workdir.server)
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    started = federation.start_server()
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    if started:
        federation.broken.append("a server started on a read-only disk")
    _expect_failure(federation, federation.current, "read-only-disk")


def _read_only_silo(federation: Federation, fault: Fault) -> None:
    """Make a silo's disk read-only while no agent runs, and start one."""
    federation.kill(federation.agents[fault.silo])
    folder = str(federation.workdir.silo(fault.silo) / "state")
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    federation.start_agent(fault.silo)
    agent = federation.agents[fault.silo]
    try:
        federation.until(lambda: not agent.running, PATIENCE_SECONDS, "an agent ends on a read-only disk")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    _expect_failure(federation, agent, "read-only-disk-silo")


def _limit_memory(federation: Federation, fault: Fault) -> None:
    """Start the server, or an agent with its trainer, where it may have less memory than it takes; once the kernel killed for it, it may have all."""
    memory, server = federation.memory, fault.share < 0.5
    process = federation.current if server else federation.agents[fault.silo]
    assert memory is not None and process is not None
    size = int(taken(process.pid) * (0.3 + fault.delay))
    federation.kill(process)
    goal = federation.last_round() + 2
    federation.limited = "anchorage_server" if server else "anchorage_silo"
    with memory.limit(size):
        if server:
            federation.start_server()
        else:
            federation.start_agent(fault.silo)
        over = lambda: memory.killed() > 0 or federation.last_round() >= goal
        federation.holds(over, PATIENCE_SECONDS / 30)
    federation.findings["ended with the limit of memory"] += memory.killed()
    federation.limited = ""


def _certificate_ends(federation: Federation, fault: Fault) -> None:
    """Have a silo's certificate end while its agent is at work, then its connection, or be near its end when it starts; it gets another one."""
    state, agent = federation.workdir.silo(fault.silo) / "state", federation.agents[fault.silo]
    over = fault.share < 0.5
    if not over:
        federation.kill(agent)
    request = SigningRequest.make(load_key(state / "silo.key"), silo_uri(federation.federation, fault.silo))
    duration = fault.seconds if over else HOUR
    made = Authority.load(federation.authority.folder, now=lambda: time.time() - (0 if over else 4 * HOUR))
    valid = timedelta(seconds=duration if over else 5 * HOUR)
    write_atomically(state / "silo.crt", made.issue_silo(request, fault.silo, valid=valid), mode=0o600, durable=True)
    if over:
        time.sleep(duration)
        federation.links[fault.silo].cut(0)

    def renewed() -> bool:
        federation.tend()
        ends = read_certificate(state / "silo.crt").not_valid_after_utc.timestamp()
        return ends > time.time() + LASTS_SECONDS

    federation.until(renewed, PATIENCE_SECONDS, "a certificate is renewed")
    federation.links[fault.silo].mend()


def _slow_disk(federation: Federation, fault: Fault) -> None:
    """Have what the server or a silo writes take long to be on its disk, while two rounds are played."""
    whose = "server" if fault.share < 0.5 else fault.silo
    federation.set_disk(whose, int(fault.seconds * 100))
    federation.advance()
    federation.set_disk(whose, 0)


def _restore_backup(federation: Federation, fault: Fault) -> None:
    """Lose the server's state, and put a snapshot of some rounds ago in its place: those are played again, to the same bytes."""
    state, snapshot, process = federation.workdir.server, federation.folder / "snapshot", federation.current
    assert process is not None
    process.signal(signal.SIGSTOP)
    shutil.copytree(state, snapshot)
    held = federation.last_round()
    process.signal(signal.SIGCONT)
    federation.advance()
    federation.kill(federation.current or process)
    lost = federation.last_round() - held
    for path in state.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(snapshot, state, dirs_exist_ok=True)
    shutil.rmtree(snapshot)
    federation.advance(lost)


def _lose_packets(federation: Federation, fault: Fault) -> None:
    """Lose packets between the links and the server for two rounds, however long they take."""
    assert federation.network is not None
    with federation.network.losing(int(federation.endpoints["silos"].rpartition(":")[2])):
        federation.advance()


def _without_mlflow(federation: Federation, fault: Fault) -> None:
    """Have MLflow be away, silent or slow for two rounds, which do not wait for it, and then catch up."""
    tracking = federation.tracking
    assert tracking is not None
    begin, end = {
        "mlflow-down": (tracking.down, tracking.start),
        "mlflow-silent": (tracking.pause, tracking.go_on),
        "mlflow-slow": (tracking.slow, tracking.mend),
    }[fault.kind]
    begin()
    federation.advance()
    federation.tend_for(fault.seconds)
    end()
    check_sent(federation, federation.last_round())


def _expect_failure(federation: Federation, process: Process | None, kind: str) -> None:
    assert process is not None
    federation.expected.add(process.pid)
    process.end()
    if not process.last_line.startswith(NAMED[kind]):
        federation.broken.append(f"{kind} is called {process.last_line}")


STOPPING: dict[str, Callable[[Federation, Fault], None]] = {
    "kill-everything": _kill_everything,
    "flip-byte": _flip_byte,
    "damage-checkpoint": _damage_checkpoint,
    "truncate-journal": _truncate_journal,
    "disk-full": _fill_disk,
    "read-only-disk": _read_only,
    "read-only-disk-silo": _read_only_silo,
    "memory-limit": _limit_memory,
    "certificate-ends": _certificate_ends,
    "disk-full-silo": _fill_silo,
    "clock-jump": _clock_jump,
    "restore-backup": _restore_backup,
    "packet-loss": _lose_packets,
    "slow-disk": _slow_disk,
    **dict.fromkeys(TRACKED, _without_mlflow),
}
