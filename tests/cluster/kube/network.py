"""A cluster's network: a network namespace with a bridge, and cables between two of them."""

from dataclasses import dataclass
from pathlib import Path

from kube.commands import run


@dataclass(frozen=True)
class Addresses:
    """A cluster's addresses, of one family alone."""

    node: str
    """Of the node, on the bridge."""
    pods: str
    """Network of the pods, in which the node is."""
    services: str
    """Network of the Services."""
    first_service: str
    """Of the API server's Service."""
    every: str
    """What a server listens on to be reached at each of its addresses."""

    @property
    def length(self) -> str:
        """Return the length of the pods' network."""
        return self.pods.partition("/")[2]

    @property
    def api_server(self) -> str:
        """Return the API server's URL."""
        return f"https://{f'[{self.node}]' if ':' in self.node else self.node}:6443"


IPV4 = Addresses("10.244.0.1", "10.244.0.0/24", "10.96.0.0/24", "10.96.0.1", "0.0.0.0")
IPV6 = Addresses("fd00:244::1", "fd00:244::/64", "fd00:96::/112", "fd00:96::1", "::")
BRIDGE = "pods"
HERE, THERE = "10.245.0.1", "10.245.0.2"


@dataclass(frozen=True)
class Namespace:
    """A network namespace without an uplink: nothing in it reaches anything outside, but over a `Cable`."""

    name: str
    addresses: Addresses = IPV4

    @property
    def entering(self) -> tuple[str, ...]:
        """Return what goes before a command that is to run inside: `ip netns exec` would hide the control groups."""
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def inside(self, *command: str | Path, check: bool = True) -> str:
        """Run a command inside."""
        return run(*self.entering, *command, check=check)

    def create(self) -> None:
        """Make it, with a bridge that holds the node's address (a `dummy` device is not to be had everywhere)."""
        run("ip", "netns", "add", self.name)
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "link", "add", BRIDGE, "type", "bridge")
        addresses, at_once = self.addresses, ("nodad",) if self.addresses is IPV6 else ()
        self.inside("ip", "address", "add", f"{addresses.node}/{addresses.length}", "dev", BRIDGE, *at_once)
        self.inside("ip", "link", "set", BRIDGE, "up")
        self.inside(
            "ip", "route", "add", addresses.services, "dev", BRIDGE
        )  # kube-proxy rewrites them; they only need a route
        forwarding = "net.ipv6.conf.all.forwarding" if addresses is IPV6 else "net.ipv4.ip_forward"
        self.inside("sysctl", "-qw", f"{forwarding}=1")

    def remove(self) -> None:
        """Take it away with everything in it."""
        run("ip", "netns", "delete", self.name, check=False)


@dataclass(frozen=True)
class Cable:
    """
    A cable between two clusters' networks, which can be cut and mended.

    Pods leave over it under the cable's own address, as from behind a site's gateway. Both clusters use the same addresses
    (`IPV4`) inside, as two sites may that know nothing of each other.
    """

    here: Namespace
    there: Namespace

    def plug(self) -> None:
        """Lay it: `here` gets the address `HERE`, `there` gets `THERE`."""
        names = ("cable", "netns", self.here.name, "type", "veth", "peer", "name", "cable", "netns", self.there.name)
        run("ip", "link", "add", *names)
        for end, address in ((self.here, HERE), (self.there, THERE)):
            end.inside("ip", "address", "add", f"{address}/24", "dev", "cable")
            end.inside("ip", "link", "set", "cable", "up")
            end.inside("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "cable", "-j", "MASQUERADE")

    def unplug(self) -> None:
        """Take it away."""
        self.here.inside("ip", "link", "delete", "cable", check=False)
        for end in (self.here, self.there):
            end.inside("iptables", "-t", "nat", "-D", "POSTROUTING", "-o", "cable", "-j", "MASQUERADE", check=False)

    def cut(self) -> None:
        """Lose every packet, as a cut line far away does: neither end is told."""
        for end in (self.here, self.there):
            for chain, direction in (("INPUT", "-i"), ("FORWARD", "-i"), ("OUTPUT", "-o")):
                end.inside("iptables", "-I", chain, direction, "cable", "-j", "DROP")

    def mend(self) -> None:
        """Undo `cut`."""
        for end in (self.here, self.there):
            for chain, direction in (("INPUT", "-i"), ("FORWARD", "-i"), ("OUTPUT", "-o")):
                end.inside("iptables", "-D", chain, direction, "cable", "-j", "DROP", check=False)

    def slow(self, megabits: int | None) -> None:
        """Hold each direction to so many megabits per second, or to none."""
        for end in (self.here, self.there):
            end.inside("tc", "qdisc", "delete", "dev", "cable", "root", check=False)
            if megabits is not None:
                shape = ("rate", f"{megabits}mbit", "burst", "64kb", "latency", "200ms")
                end.inside("tc", "qdisc", "add", "dev", "cable", "root", "tbf", *shape)
