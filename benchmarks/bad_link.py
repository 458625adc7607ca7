"""One update over a bad line with an outage (``make bench-bad-link``; Linux, root, iproute2, iptables).

Real processes, mutual TLS, a model of ResNet18's size, a silo that trains nothing. The script starts anew in a network namespace of its own,
where the server listens, and the agent is in another: a pair of virtual Ethernet devices joins them, shaped to a rate (tbf), on which a share of
the packets is lost (iptables' ``statistic``), both ways; TCP is Reno, which takes every loss for a full line. When half of the update is there (or
`--cut-at`), no packet comes through for the outage's length.

What arrived is the payload of the TCP segments that came in at the server while the update travelled, with TLS, HTTP/2, announcement, pings, and
what came twice. What was sent is all that the silo's end put on the line, with headers and what was lost. Another training at the silo would write
its announcement's file anew.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from links import ENCODINGS, MOST_SECONDS, MTU, WITHIN, SlowSite, enter_namespace, federation_processes, write_study

from anchorage.api.files import Study

SERVER, SILO = "10.9.0.1", "10.9.0.2"
HEADERS = 52
"""Bytes of a TCP segment besides its payload: IP, TCP and its time stamps."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Line:
    """The pair of devices: `near` is the server's end, `far` the silo's, in the namespace of a process."""

    far_pid: int

    @property
    def within(self) -> tuple[str, ...]:
        """Return the command that starts another at the silo's end."""
        return "nsenter", f"--net=/proc/{self.far_pid}/ns/net"

    def shape(self, megabits: float, loss: float) -> None:
        """Join the namespaces, with a rate and a share of packets that are lost."""
        run(
            "ip",
            "link",
            "add",
            "near",
            "mtu",
            str(MTU),
            "type",
            "veth",
            "peer",
            "name",
            "far",
            "netns",
            str(self.far_pid),
        )
        for device, address, at in (("near", SERVER, ()), ("far", SILO, self.within)):
            run(*at, "ip", "address", "add", f"{address}/24", "dev", device)
            run(
                *at, "ip", "link", "set", device, "mtu", str(MTU), "gso_max_segs", "1", "up"
            )  # packets as a line has them
            shaped = ("tbf", "rate", f"{megabits}mbit", "burst", "16kb", "latency", "200ms")
            run(*at, "tc", "qdisc", "add", "dev", device, "root", *shaped)
            lost = ("-m", "statistic", "--mode", "random", "--probability", str(loss), "-j", "DROP")
            run(*at, "iptables", "-A", "INPUT", "-i", device, *lost)
            run(*at, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
        run("iptables", "-A", "INPUT", "-i", "near", "-p", "tcp")  # a rule that only counts
        run(*self.within, "iptables", "-A", "OUTPUT", "-o", "far", "-p", "tcp")

    def cut(self, *, off: bool) -> None:
        """Let nothing through, or let it through again."""
        change = ("-I", "INPUT", "1") if off else ("-D", "INPUT")
        run("iptables", *change, "-i", "near", "-j", "DROP")
        run(*self.within, "iptables", *change, "-i", "far", "-j", "DROP")

    def counted(self) -> tuple[int, int]:
        """Return the payload that arrived at the server's end, and all bytes that the silo's end sent."""
        packets, nbytes = self._last(("iptables", "-nvxL", "INPUT"))
        return nbytes - HEADERS * packets, self._last((*self.within, "iptables", "-nvxL", "OUTPUT"))[1]

    def _last(self, command: Sequence[str]) -> tuple[int, int]:
        packets, nbytes = run(*command).splitlines()[-1].split()[:2]
        return int(packets), int(nbytes)


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class FarSite(SlowSite):
    """A federation whose silo is at the line's other end."""

    address = staticmethod(lambda silo: SERVER)

    def __init__(self, study: Study, line: Line) -> None:
        super().__init__(study)
        self.line = line

    def within(self, module: str) -> Sequence[str]:
        """Start agents there."""
        return self.line.within if module == "anchorage_silo" else ()

    def wait(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the silo's status until something holds of it, or the server has ended."""
        silo: dict[str, Any] = {}
        with suppress(OSError):
            while not holds(silo := self.status()["silos"][0]):
                time.sleep(POLL_SECONDS)
        return silo

    def count_until_upload(self) -> tuple[int, int]:
        """Wait for the upload, and return what the line counted shortly before it."""
        before = self.line.counted()
        while (now := self.line.counted()) and self.status()["silos"][0]["state"] != "Uploading":
            before = now
            time.sleep(POLL_SECONDS)
        return before

    def training(self) -> tuple[int, int]:
        """Return what another training would change at the silo: the file of its announcement is written anew."""
        stat = (self.workdir.silo("a") / "state" / "announced.bin").stat()
        return stat.st_ino, stat.st_mtime_ns


@dataclass(frozen=True)
class Row:
    """One update over the line."""

    encoding: str
    update: float
    """Bytes of its chunks, as they travel."""
    received: float
    """Bytes of payload that arrived."""
    sent: float
    """Bytes that were put on the line."""
    seconds: float
    """From the permit to the update's last byte, with the outage."""
    floor: float
    """Seconds that the line needs for the update, and the outage."""
    told_left: float
    """Seconds that the status said were left when the outage began."""
    back: float
    """Seconds from the end of the outage to the next chunk."""
    same_training: bool
    """Whether the update is of the training before the outage."""


def play(encoding: str, line: Line, megabits: float, outage: float, copies: int, cut_at: float) -> Row:
    """Play a round of a model of so many times `links.SHAPES`; the outage begins at a share of its update."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anchorage-bad-link-")))
        site = stack.enter_context(FarSite(write_study(folder, encoding, None, 1, 1, copies), line))
        server, agent = site.server(), site.slow_agent("a")
        received, sent = site.count_until_upload()
        start, trained = time.monotonic(), site.training()
        cut = site.wait(lambda silo: is_reached(cut_at, time.monotonic() - start, silo["secondsLeft"]))
        line.cut(off=True)
        time.sleep(outage)
        line.cut(off=False)
        restored_at = time.monotonic()
        site.wait(lambda silo: silo["connected"] and (silo["rate"] > 0 or silo["state"] != "Uploading"))
        back = time.monotonic() - restored_at
        site.wait(lambda silo: silo["state"] != "Uploading")
        seconds, (received_then, sent_then) = time.monotonic() - start, line.counted()
        site.finish(server, agent)
        same, update = site.training() == trained, float(site.records()[1]["bytesUp"])
    floor = update * 8 / (megabits * 1e6) + outage
    moved = received_then - received, sent_then - sent
    return Row(encoding, update, *moved, seconds, floor, cut["secondsLeft"], back, same)


def is_reached(share: float, elapsed: float, remaining: float | None) -> bool:
    """Return whether a share of the update is there, by the seconds that it took so far and those that are said to be left."""
    return remaining is not None and elapsed >= share * (elapsed + remaining)


@contextmanager
def line_of(megabits: float, loss: float) -> Iterator[Line]:
    """Open a line to a namespace that lives as long as the block."""
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        try:
            here = Path("/proc/self/ns/net").readlink()
            while Path(f"/proc/{holder.pid}/ns/net").readlink() == here:
                time.sleep(0.01)
            line = Line(holder.pid)
            line.shape(megabits, loss)
            yield line
        finally:
            holder.terminate()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--encoding", default="float32", choices=ENCODINGS)
    parser.add_argument("--megabits", type=float, default=4.0, help="of the line, up and down")
    parser.add_argument("--loss", type=float, default=0.05, help="share of the packets that are lost, up and down")
    parser.add_argument("--outage", type=float, default=600.0, help="seconds without the line")
    parser.add_argument("--copies", type=int, default=1, help="the model is so many times 44.75 MB")
    parser.add_argument("--cut-at", type=float, default=0.5, help="share of the update after which the outage begins")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    if WITHIN not in os.environ:
        return enter_namespace()
    run("ip", "link", "set", "lo", "up")
    federation_processes.WAIT_SECONDS = MOST_SECONDS
    with line_of(arguments.megabits, arguments.loss) as line:
        row = play(arguments.encoding, line, arguments.megabits, arguments.outage, arguments.copies, arguments.cut_at)
    print(
        f"{row.encoding}: {row.update / 1e6:.2f} MB; arrived {row.received / 1e6:.2f} MB, {row.received / row.update:.3f} times, "
        f"sent {row.sent / 1e6:.2f} MB, {row.sent / row.update:.3f} times\n"
        f"{row.seconds:.1f} s, floor {row.floor:.1f} s with an outage of {arguments.outage:.0f} s; {row.told_left} s were said to be left "
        f"when it began; the next chunk came {row.back:.1f} s after it; trained {'once' if row.same_training else 'AGAIN'}"
    )
    if arguments.json:
        report = {
            "benchmark": "bad_link",
            "row": vars(row),
            "line": {
                "megabits": arguments.megabits,
                "loss": arguments.loss,
                "outage": arguments.outage,
                "cutAt": arguments.cut_at,
            },
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
