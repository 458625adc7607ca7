"""A network and mounts of the driver's own: what it loses, and which names are known in it, concerns nobody else on the machine."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "server.chaos"
"""By which agents call the server."""
LOSS = 0.05
"""Probability with which a packet is lost."""
_NEW_MOUNTS, _NEW_NETWORK = 0x00020000, 0x40000000  # CLONE_NEWNS, CLONE_NEWNET of <sched.h>


class Network:
    """What this process and its children see of the network; made before any thread starts."""

    def __init__(self, hosts: Path) -> None:
        self._hosts = hosts

    @classmethod
    def enter(cls, folder: Path) -> "Network | None":
        """Leave the machine's network for one with nothing but a loopback; None where this may not be done. `folder` is for its file of names."""
        tools = all(shutil.which(tool) for tool in ("ip", "iptables", "mount"))
        if not tools or os.geteuid() != 0 or ctypes.CDLL(None).unshare(_NEW_MOUNTS | _NEW_NETWORK) != 0:
            return None
        network = cls(folder / "hosts")
        network.know()
        for command in ("mount --make-rprivate /", f"mount --bind {network._hosts} /etc/hosts", "ip link set lo up"):
            subprocess.run(command.split(), check=True)
        return network

    def know(self) -> None:
        """Have `NAME` resolve to the loopback."""
        self._hosts.write_text(f"127.0.0.1 localhost {NAME}\n")

    def forget(self) -> None:
        """Have `NAME` be unknown."""
        self._hosts.write_text("127.0.0.1 localhost\n")

    @contextmanager
    def losing(self, port: int) -> Iterator[None]:
        """Lose packets from and to a port, each by a coin of its own."""
        rules = [
            f"INPUT -p tcp --{end} {port} -m statistic --mode random --probability {LOSS} -j DROP"
            for end in ("dport", "sport")
        ]
        for rule in rules:
            subprocess.run(["iptables", "-w", "-A", *rule.split()], check=True)
        try:
            yield
        finally:
            for rule in rules:
                subprocess.run(["iptables", "-w", "-D", *rule.split()], check=True)
