"""Which system calls a confined trainer is refused. A free process carries every attack out first: it would succeed."""

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined_program import Attempt, grants_of, make_state, tried

from anchorage_silo import confinement, landlock, seccomp

IPPROTO_MPTCP, MSG_FASTOPEN, AF_VSOCK = 262, 0x20000000, 40
FILTERED = pytest.mark.skipif(not seccomp.available(), reason="this kernel or processor has no filter of system calls")
X86_64 = os.uname().machine == "x86_64"


class Peers:
    """Who listens outside: on TCP, UDP, and sockets by path and by abstract name."""

    def __init__(self, folder: Path) -> None:
        self.path, self.datagrams, self.packets = (str(folder / name) for name in ("stream", "datagrams", "packets"))
        self.abstract = f"\0anchorage-{os.getpid()}-{folder.name}"
        self._sockets = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        self._sockets[1].bind(("127.0.0.1", 0))
        self.tcp, self.udp = ([*each.getsockname()] for each in self._sockets)
        kinds = [
            (socket.SOCK_STREAM, self.path),
            (socket.SOCK_STREAM, self.abstract),
            (socket.SOCK_DGRAM, self.datagrams),
            (socket.SOCK_SEQPACKET, self.packets),
        ]
        for kind, address in kinds:
            self._sockets.append(socket.socket(socket.AF_UNIX, kind))
            self._sockets[-1].bind(address)
            if kind == socket.SOCK_DGRAM:
                self.receiver = self._sockets[-1]
                self.receiver.setblocking(False)
            else:
                self._sockets[-1].listen(8)

    def attacks(self) -> dict[str, Attempt]:
        """Return how a process would reach them, or the kernel's own families."""
        inet, unix, stream, datagram = socket.AF_INET, socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
        return {
            "TCP": ("connect by", [[inet, stream], self.tcp]),
            "MPTCP": ("connect by", [[inet, stream, IPPROTO_MPTCP], self.tcp]),
            "UDP": ("send by", [[inet, datagram], 0, self.udp]),
            "TCP fast open": ("send by", [[inet, stream], MSG_FASTOPEN, self.tcp]),
            "Unix stream by path": ("connect by", [[unix, stream], self.path]),
            "Unix stream by abstract name": ("connect by", [[unix, stream], self.abstract]),
            "Unix packets by path": ("connect by", [[unix, socket.SOCK_SEQPACKET], self.packets]),
            "Unix datagram by path": ("send by", [[unix, datagram], 0, self.datagrams]),
            "Unix datagram, raw": ("send by", [[unix, socket.SOCK_RAW], 0, self.datagrams]),
            "Unix datagram from a pair": ("send from pair", [datagram, self.datagrams]),
            "netlink": ("socket", [socket.AF_NETLINK, socket.SOCK_RAW, 0]),
            "netlink, connector": ("socket", [socket.AF_NETLINK, datagram, 16]),
            "raw": ("socket", [inet, socket.SOCK_RAW, socket.IPPROTO_ICMP]),
            "packets of a network card": ("socket", [socket.AF_PACKET, socket.SOCK_RAW, 0]),
            "virtual machines": ("socket", [AF_VSOCK, stream, 0]),
            "IPv6": ("socket", [socket.AF_INET6, datagram, 0]),
            "cryptography of the kernel": ("socket", [socket.AF_ALG, socket.SOCK_SEQPACKET, 0]),
        }

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    peers = Peers(tmp_path)
    yield peers
    peers.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return make_state(tmp_path)


NAMES = (
    "TCP", "MPTCP", "UDP", "TCP fast open", "Unix stream by path", "Unix stream by abstract name", "Unix packets by path", "Unix datagram by path",
    "Unix datagram, raw", "Unix datagram from a pair", "netlink", "netlink, connector", "raw", "packets of a network card", "virtual machines",
    "IPv6", "cryptography of the kernel",
)  # fmt: skip


@FILTERED
@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_reaches_nobody(state: Path, peers: Peers, name: str) -> None:
    attack = peers.attacks()[name]
    (free,), _ = tried(None, [attack])
    if free != "done":
        pytest.skip(f"a free process of this user and kernel cannot do it either ({name}: {free})")
    assert tried(grants_of(state), [attack])[0][0] in ("PermissionError", "FileNotFoundError")


@FILTERED
@pytest.mark.parametrize(
    "name", ["MPTCP", "UDP", "netlink, connector", "raw", "packets of a network card", "virtual machines", "IPv6"]
)
def test_a_trainer_of_several_devices_has_tcp_alone(state: Path, peers: Peers, name: str) -> None:
    """And sockets by path, which NVIDIA's library of collectives needs."""
    attack, tcp = peers.attacks()[name], peers.attacks()["TCP"]
    (free,), _ = tried(None, [attack])
    if free != "done":
        pytest.skip(f"a free process of this user and kernel cannot do it either ({name}: {free})")
    results, _ = tried(
        grants_of(state, network=True),
        [attack, tcp, peers.attacks()["Unix stream by path"], peers.attacks()["netlink"]],
    )
    assert results == ["PermissionError", "done", "done", "done"]


@FILTERED
def test_a_trainer_speaks_to_its_own_processes(state: Path, peers: Peers) -> None:
    """By pipes and pairs of sockets, which lead nowhere else, also when the other end is closed."""
    pairs = [("pass descriptor", [0])]
    pairs += [
        ("connect pair", [kind, address, closed])
        for kind, address in ((socket.SOCK_STREAM, peers.path), (socket.SOCK_SEQPACKET, peers.packets))
        for closed in (False, True)
    ]
    pairs += [("send from pair", [kind, peers.datagrams]) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
    for network in (False, True):
        first, *others = tried(grants_of(state, network=network), pairs)[0]
        assert first == "done"
        assert "done" not in others[:4]
    with pytest.raises(BlockingIOError):
        peers.receiver.recv(1)


@FILTERED
def test_a_socket_by_path_is_left_where_a_multi_process_service_waits(
    state: Path, peers: Peers, tmp_path: Path
) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as service:
        service.bind(str(folder / "control"))
        service.listen(1)
        attempts = [
            peers.attacks()["TCP"],
            ("connect by", [[socket.AF_UNIX, socket.SOCK_SEQPACKET], str(folder / "control")]),
        ]
        assert tried(grants_of(state), attempts)[0] == ["PermissionError", "FileNotFoundError"]
        assert tried(grants_of(state), attempts, CUDA_MPS_PIPE_DIRECTORY=str(folder))[0] == ["PermissionError", "done"]


CALLS: dict[str, tuple[Attempt, Attempt]] = {
    # by name: on x86-64, on ARM64
    "io_uring_setup": (("call with room", [425, 1, "room"]),) * 2,
    "ptrace": (("call", [101, 0, 0, 0, 0]), ("call", [117, 0, 0, 0, 0])),
    "keyctl": (("call", [250, 0, -2, 1]), ("call", [219, 0, -2, 1])),
    "userfaultfd": (("call", [323, 0]), ("call", [282, 0])),
    "bpf": (("call with room", [321, 0, "room", 72]), ("call with room", [280, 0, "room", 72])),
    "unshare": (("call", [272, 0x40000000]), ("call", [97, 0x40000000])),
    "clone with a name space": (("fork", [56, 0x40000000 | signal.SIGCHLD, 0, 0, 0, 0]), ("fork", [220, 0x40000000 | signal.SIGCHLD, 0, 0, 0, 0])),
    "syslog": (("call", [103, 10, 0, 0]), ("call", [116, 10, 0, 0])),
    "chroot": (("chroot", ["/usr"]),) * 2,
}  # fmt: skip


@FILTERED
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_reach_further_are_refused(state: Path, name: str) -> None:
    attempt = CALLS[name][0 if X86_64 else 1]
    (free,), _ = tried(None, [attempt])
    if free != "done":
        pytest.skip(f"a free process of this user and kernel cannot do it either ({name}: {free})")
    assert tried(grants_of(state), [attempt])[0] == ["PermissionError"]


@FILTERED
def test_modes_and_owners_of_files_stay(state: Path) -> None:
    """Landlock does not guard them: of no file, also its own, which are its alone from the first."""
    own_folder, key = state / "trainer" / "own", state / "silo.key"
    own_folder.write_text("")
    key.chmod(0o600)
    attempts: list[Attempt] = []
    for path in (str(key), str(own_folder), sys.executable, "/etc/passwd"):
        attempts += [
            ("chmod", [path, 0o666]),
            ("chown", [path, os.getuid(), os.getgid()]),
            ("lchown", [path, os.getuid(), os.getgid()]),
        ]
    assert set(tried(grants_of(state), attempts)[0]) == {"PermissionError"}
    assert key.stat().st_mode & 0o777 == 0o600


@FILTERED
def test_processes_that_a_trainer_starts_are_filtered_too(state: Path) -> None:
    code = "import socket, subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-c', 'import socket; socket.socket()']))"
    done = subprocess.run(
        grants_of(state).command((sys.executable, "-c", code)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "PermissionError" in done.stderr


@FILTERED
@pytest.mark.skipif(not X86_64, reason="the machine code is x86-64's")
def test_calls_by_the_32_bit_interface_end_the_process(state: Path) -> None:
    code = """
import ctypes, mmap
room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
room.write(bytes.fromhex("53 b8 14 00 00 00 cd 80 5b c3"))  # getpid by interrupt 128
print(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(room)))())
"""
    program = (sys.executable, "-c", code)
    if subprocess.run(program, capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel has no 32-bit interface")
    done = subprocess.run(grants_of(state).command(program), capture_output=True, check=False)
    assert done.returncode == -signal.SIGSYS


def verdict_of(
    machine: str, number: int, *arguments: int, monkeypatch: pytest.MonkeyPatch, architecture: int = 0, **allowed: bool
) -> int:
    """Interpret the filter of a machine on a call, as the kernel does; return its action."""
    monkeypatch.setattr(seccomp.platform, "machine", lambda: machine)
    own_architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    data = struct.pack("=IIQ6Q", number, architecture or own_architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    program = [struct.unpack("=HBBI", each) for each in seccomp._instructions(**allowed)]
    place = accumulator = 0
    while True:
        code, matched, otherwise, value = program[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code in (0x15, 0x25):
            place += matched if (accumulator == value if code == 0x15 else accumulator > value) else otherwise
        elif code == 0x06:
            return value
        else:
            raise AssertionError(f"instruction {code:#x}")


ALLOW, KILL, EPERM, EACCES, ENOENT, ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x5000D, 0x50002, 0x50026
NUMBERS = {
    "x86_64": {"socket": 41, "socketpair": 53, "connect": 42, "clone": 56, "openat": 257, "ptrace": 101, "keyctl": 250, "setns": 308},
    "aarch64": {"socket": 198, "socketpair": 199, "connect": 203, "clone": 220, "openat": 56, "ptrace": 117, "keyctl": 219, "setns": 268},
}  # fmt: skip


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_of_each_processor(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the other one, too, instruction by instruction."""
    numbers = NUMBERS[machine]

    def verdict(call: str | int, *arguments: int, architecture: int = 0, unix: bool = False, tcp: bool = False) -> int:
        number = call if isinstance(call, int) else numbers[call]
        return verdict_of(
            machine, number, *arguments, monkeypatch=monkeypatch, architecture=architecture, unix=unix, tcp=tcp
        )

    cloexec, stream, datagram, raw, packets = 0o2000000, 1, 2, 3, 5
    assert verdict("openat") == verdict("openat", tcp=True, unix=True) == ALLOW
    assert verdict("openat", architecture=0x40000003) == verdict("openat", architecture=0x40000028) == KILL
    assert verdict(0x40000000 | numbers["socket"], 2, stream, 0) == verdict(470) == verdict(435) == ENOSYS
    assert verdict("socket", 1, stream | cloexec, 0) == verdict("socketpair", 1, packets, 0) == ALLOW
    assert {verdict("socket", 1, kind, 0) for kind in (datagram, raw)} == {EACCES}
    assert {
        verdict(pair, family, stream, 0) for pair in ("socket", "socketpair") for family in (2, 10, 16, 17, 40)
    } == {EACCES}
    assert verdict("socket", 1 << 32 | 2, stream, 0) == EACCES, "the kernel looks at the low half alone"
    assert verdict("connect", 3) == ENOENT
    assert verdict("connect", 3, unix=True) == ALLOW
    assert verdict("socket", 1, datagram, 0, unix=True) == ALLOW
    assert verdict("socket", 2, stream, 0, unix=True) == EACCES
    several = {"unix": True, "tcp": True}
    assert {verdict("socket", family, stream, protocol, **several) for family in (2, 10) for protocol in (0, 6)} == {
        ALLOW
    }
    assert {verdict("socket", 2, stream, protocol, **several) for protocol in (132, IPPROTO_MPTCP)} == {EACCES}
    assert {verdict("socket", 2, kind, 0, **several) for kind in (datagram, raw)} == {EACCES}
    assert verdict("socket", 16, raw, 0, **several) == ALLOW
    assert verdict("socket", 16, raw, 16, **several) == EACCES
    assert verdict("clone", 0x3D0F00) == ALLOW
    assert {verdict("clone", 1 << bit | 17) for bit in (17, 25, 26, 27, 28, 29, 30)} == {EPERM}
    assert {verdict(call) for call in ("ptrace", "keyctl", "setns", 425, 438)} == {EPERM}


def test_an_agent_says_what_its_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "shares_devices", lambda environment: False)
    answers = {}
    for version in (0, 1, landlock.NETWORK_ABI, landlock.SCOPES_ABI):
        for filters in (False, True):
            monkeypatch.setattr(confinement, "abi", lambda version=version: version)
            monkeypatch.setattr(seccomp, "available", lambda filters=filters: filters)
            assert confinement.confinable() is bool(version or filters)
            answers[version, filters] = confinement.words(network=False), confinement.gaps()
    best, gaps = answers.pop((landlock.SCOPES_ABI, True))
    assert gaps == () and best.endswith("connects to nobody") and "not kept" not in best
    assert all(gaps and all(gap in words for gap in gaps) for words, gaps in answers.values())
    assert answers[0, False][0].startswith("nothing; not kept from the silo's key")
    assert all(("connections" in words) is not filters for (version, filters), (words, _) in answers.items())
    assert "connections but by TCP" in answers[landlock.NETWORK_ABI, False][0]
    assert "TCP and sockets by path" in confinement.words(network=True)
