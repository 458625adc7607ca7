"""A path with a smaller MTU than both ends, which loses the messages that say so: three network namespaces, the middle one forwards."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lossy_path import SERVER

SCRIPT = Path(__file__).with_name("lossy_path.py")
SILO, WAY, SITE = (f"mtu{os.getpid()}-{name}" for name in ("silo", "way", "site"))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def lay_path() -> None:
    for name in (SILO, WAY, SITE):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    for end, network, host in ((SILO, "10.77.1", "10.77.1.2"), (SITE, "10.77.2", SERVER)):
        link = f"to-{end[-4:]}"
        ip("link", "add", "near", "netns", end, "type", "veth", "peer", "name", link, "netns", WAY)
        for namespace, address, device in ((end, host, "near"), (WAY, f"{network}.1", link)):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", device)
            ip("-n", namespace, "link", "set", device, "up")
        ip("-n", end, "route", "add", "default", "via", f"{network}.1")
        ip("-n", WAY, "route", "replace", f"{network}.0/24", "dev", link, "mtu", "lock", "1280")
        ip("-n", end, "rule", "add", "pref", "10", "lookup", "local")
        ip("-n", end, "rule", "add", "pref", "5", "ipproto", "icmp", "blackhole")
        ip("-n", end, "rule", "delete", "pref", "0")
    ip("netns", "exec", WAY, "sysctl", "-qw", "net.ipv4.ip_forward=1")


@pytest.fixture
def path() -> Iterator[None]:
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    try:
        lay_path()
        yield
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    finally:
        for name in (SILO, WAY, SITE):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.integration
@pytest.mark.usefixtures("path")
def test_an_agent_gets_through_with_small_segments_and_says_why(tmp_path: Path) -> None:
    inside = {end: ["ip", "netns", "exec", end, sys.executable, str(SCRIPT)] for end in (SILO, SITE)}
    serving = [*inside[SITE], "serve", str(tmp_path)]
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        assert server.stdout.readline() == "ready\n"
        done = subprocess.run([*inside[SILO], "enrol", str(tmp_path)], capture_output=True, text=True, timeout=300)
        server.stdin.close()
    assert done.stdout.split() == ["ANC-2159", "enrolled"], done.stderr
    assert "was reached with small segments only" in done.stderr and "set the MTU" in done.stderr
