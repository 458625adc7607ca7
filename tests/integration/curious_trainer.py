"""A trainer that first tries to reach what is its agent's, the network and the system, and tells what became of that: run with the state folder."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from anchorage_silo.trainer import main

STATE, AGENT = Path(sys.argv[1]), f"/proc/{os.getppid()}"


def attempt(name: str, what: Callable[[], object]) -> None:
    try:
        what()
    except OSError as error:
        sys.stderr.write(f"{name}: {type(error).__name__}\n")
    else:
        sys.stderr.write(f"{name}: DONE\n")


for name in ("silo.key", "silo.crt", "audit.jsonl", "audit.key", "audit.head", "lock", "../token"):
    attempt(name, (STATE / name).read_bytes)
for name in ("environ", "mem", "maps", "cmdline", "fd/0"):
    attempt(f"agent's {name}", lambda name=name: os.close(os.open(f"{AGENT}/{name}", os.O_RDONLY)))
for name, kind in {
    "TCP": (socket.AF_INET, socket.SOCK_STREAM),
    "MPTCP": (socket.AF_INET, socket.SOCK_STREAM, 262),
    "UDP": (socket.AF_INET, socket.SOCK_DGRAM),
    "netlink": (socket.AF_NETLINK, socket.SOCK_RAW),
    "Unix datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM),
}.items():
    attempt(name, lambda kind=kind: socket.socket(*kind))
attempt("Unix path", lambda: socket.socket(socket.AF_UNIX).connect("/run/anything"))
attempt("kernel's settings", lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY))
attempt("folders", lambda: list(Path("/srv").iterdir()))
attempt("modes", lambda: (STATE / "silo.key").chmod(0o644))
main()
