"""What a process that is confined by Landlock can reach; that trainers train so as ever, the tests of `real_silo` show."""

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from textwrap import indent

import pytest
from confined_program import TRY, grants_of, make_state, tried
from forking import forking

from anchorage_silo import confinement, landlock
from anchorage_silo.files import trainer_folder

pytestmark = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock: a trainer is not confined")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return make_state(tmp_path)


@pytest.mark.parametrize("images", ["images", ".", "link"])
def test_what_is_the_agent_s_cannot_be_read_or_changed(state: Path, images: str) -> None:
    """Also where the images' folder is one above the agent's, or a link to it."""
    parent = state.parent
    secrets = [state / name for name in ("silo.key", "silo.crt", "audit.jsonl", "audit.key")]
    secrets += [
        parent / "token",
        parent / "policy.yaml",
        parent / "ledger" / "privacy.jsonl",
        parent / "link" / "silo.key",
    ]
    attempts = [(how, [str(path)]) for path in secrets for how in ("read", "append", "unlink")]
    moved = str(trainer_folder(state) / "key")
    moves = [(how, [str(secrets[0]), moved]) for how in ("rename", "link")]
    made = [("symlink", [str(secrets[0]), moved]), ("list", [str(state)]), ("append", [str(state / "new")])]
    results, _ = tried(grants_of(state, images), [*attempts, *moves, *made])
    assert set(results) <= {"PermissionError"} | {"OSError"}, (
        results
    )  # a link to another folder is refused as one to another device
    assert set(results[: len(attempts)]) == {"PermissionError"}
    assert all(path.read_text() == "secret" for path in secrets)


def test_a_forked_trainer_is_confined_as_one_that_is_started(state: Path, tmp_path: Path) -> None:
    """It finds neither files of the agent nor secrets of the process that it was forked from."""
    module = tmp_path / "modules" / "forked_trials.py"
    module.parent.mkdir()
    module.write_text(f"def main():\n{indent(TRY, '    ')}")
    attempts = [("read", [str(state / "silo.key")]), ("append", [str(trainer_folder(state) / "update.bin")])]
    attempts += [("socket", [socket.AF_INET, socket.SOCK_STREAM]), ("read", ["/proc/self/status"])]
    command = grants_of(state).command([sys.executable, "-m", module.stem])
    with (
        forking([module.stem, confinement.__name__], {"PYTHONPATH": str(module.parent)}) as server,
        server.start(command, env={**os.environ, "API_TOKEN": "2", "NCCL_DEBUG": "WARN"}) as process,
    ):
        output, errors = process.communicate(json.dumps(attempts))
    assert process.returncode == 0, errors
    results, environment = json.loads(output)
    assert results == ["PermissionError", "done", "PermissionError", "done"]
    assert environment["TMPDIR"] == str(trainer_folder(state) / "tmp") and environment["NCCL_DEBUG"] == "WARN"
    assert "API_TOKEN" not in environment


def test_what_training_needs_can_be_reached(state: Path) -> None:
    trainer_state = trainer_folder(state)
    attempts = [
        ("read", [str(state.parent / "images" / "a.png")]),
        ("append", [str(trainer_state / "update.bin")]),
        ("list", [str(trainer_state)]),
    ]
    attempts += [
        ("mkdir", [str(trainer_state / "learner")]),
        ("rename", [str(trainer_state / "update.bin"), str(trainer_state / "learner" / "x")]),
    ]
    attempts += [
        ("append", ["/dev/null"]),
        ("read", ["/proc/self/status"]),
        ("read", [os.__file__]),
        ("append", ["/proc/self/comm"]),
    ]
    attempts += [("read", [json.__file__]), ("read", [confinement.__file__])]
    results, own_environment = tried(grants_of(state), attempts)
    assert set(results) == {"done"}, results
    assert own_environment["TMPDIR"] == str(trainer_state / "tmp")


def test_homes_and_other_agents_are_out_of_reach(state: Path) -> None:
    home = state.parent / "home"
    home.mkdir()
    (home / "notes").write_text("secret")
    attempts = [("read", [str(home / "notes")]), ("read", [str(state.parent / "other" / "state" / "silo.key")])]
    results, environment = tried(
        grants_of(state), attempts, HOME=str(home), OTEL_EXPORTER_OTLP_HEADERS="key=1", API_TOKEN="2", NCCL_DEBUG="WARN"
    )
    assert results == ["PermissionError"] * 2
    assert environment["NCCL_DEBUG"] == "WARN"
    assert not environment.keys() & {"OTEL_EXPORTER_OTLP_HEADERS", "API_TOKEN"}


@pytest.fixture(params=["/srv", "/opt", "/var/lib", "/mnt", "/"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with a secret outside of homes, as root makes them."""
    if not os.access(request.param, os.W_OK):
        pytest.skip(f"needs root, to make a folder in {request.param}")
    folder = Path(tempfile.mkdtemp(prefix="anchorage-", dir=request.param))
    (folder / "secret").write_text("secret")
    yield folder
    rmtree(folder)


def test_other_folders_of_the_system_are_out_of_reach(state: Path, place: Path) -> None:
    """Also for root, and where the agent was started there."""
    attempts = [("read", [str(place / "secret")]), ("list", [str(place)]), ("append", [str(place / "secret")])]
    assert tried(grants_of(state), attempts, place)[0] == ["PermissionError"] * 3
    assert tried(None, attempts, place)[0] == ["done"] * 3


def test_images_can_be_anywhere(state: Path, place: Path) -> None:
    (state.parent / "mounted").symlink_to(place)
    attempts = [("read", [str(place / "secret")]), ("append", [str(place / "secret")])]
    results, _ = tried(grants_of(state, "mounted"), attempts)
    assert results == ["done", "PermissionError"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whom the kernel would let in")
def test_what_only_root_may_read_is_out_of_reach(state: Path) -> None:
    disks = [str(path) for path in Path("/dev").iterdir() if stat.S_ISBLK(path.stat().st_mode)]
    existing = [
        path
        for path in ("/etc/shadow", "/etc/sudoers", "/etc/machine-id", "/dev/kmsg", *disks[:1])
        if Path(path).exists()
    ]
    assert existing
    attempts = [("open", [path, os.O_RDONLY]) for path in existing]
    assert set(tried(grants_of(state), attempts)[0]) == {"PermissionError"}


@pytest.mark.parametrize("network", [False, True])
def test_settings_of_the_kernel_cannot_be_written(state: Path, network: bool) -> None:
    settings = ["/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", f"/proc/{os.getpid()}/comm",
                f"/proc/{os.getpid()}/oom_score_adj", "/sys/kernel/mm/transparent_hugepage/enabled"]  # fmt: skip
    attempts = [("open", [path, os.O_WRONLY]) for path in settings if Path(path).exists()]
    assert set(tried(grants_of(state, network=network), attempts)[0]) == {"PermissionError"}


def test_of_proc_is_left_what_is_of_the_machine_and_its_own(state: Path) -> None:
    other = f"/proc/{os.getpid()}"
    refused = [("read", [f"{other}/{file}"]) for file in ("cmdline", "status", "stat", "comm")]
    refused += [("list", ["/proc"]), ("list", [other]), ("read", ["/proc/sys/net/ipv4/ip_forward"])]
    assert set(tried(grants_of(state), refused)[0]) == {"PermissionError"}
    allowed = [
        ("read", [f"/proc/{file}"])
        for file in ("self/status", "self/maps", "self/cgroup", "cpuinfo", "meminfo", "stat", "thread-self/stat")
    ]
    allowed += [
        ("read", ["/sys/devices/system/cpu/possible"]),
        ("append", ["/proc/self/comm"]),
        ("list", ["/proc/self/task"]),
    ]
    assert set(tried(grants_of(state), allowed)[0]) == {"done"}


@pytest.mark.skipif(
    not os.access("/proc/sys/vm/drop_caches", os.W_OK), reason="needs root, and a /proc that can be written"
)
def test_what_is_granted_of_proc_stays_so_when_the_kernel_needs_memory(state: Path) -> None:
    paths = ["/proc/meminfo", "/proc/cpuinfo", "/proc/self/status", "/proc/sys/vm/overcommit_memory"]
    code = f"print(flush=True)\ninput()\nfor path in {paths}:\n    open(path).read()\nprint('read')"
    command = grants_of(state).command((sys.executable, "-c", code))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as confined:
        assert confined.stdin is not None and confined.stdout is not None
        assert confined.stdout.readline() == "\n"
        Path("/proc/sys/vm/drop_caches").write_text("2")
        assert confined.communicate("\n")[0] == "read\n"


def test_packages_that_are_links_to_their_source_can_be_read(state: Path) -> None:
    """A package that a finder loads from a folder that is in no search path."""
    parent = state.parent
    source = parent / "their code"
    (source / "package").mkdir(parents=True)
    (source / "package" / "__init__.py").write_text("")
    installed = parent / "site" / "piece-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: piece\nVersion: 1.0\n")
    (installed / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    attempts = [("read", [str(source / "package" / "__init__.py")])]
    assert tried(grants_of(state), attempts)[0] == ["PermissionError"]
    paths = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(parent / "site")])
    assert tried(grants_of(state), attempts, PYTHONPATH=paths)[0] == ["done"]


@pytest.mark.skipif(landlock.abi() < landlock.SCOPES_ABI, reason="this kernel's Landlock knows no scopes of signals")
def test_memory_environment_and_signals_of_the_agent_are_out_of_reach(state: Path) -> None:
    attempts = [("read", [f"/proc/{os.getpid()}/{file}"]) for file in ("mem", "environ", "maps", "fd/0")]
    attempts += [("signal", [os.getpid(), 0])]
    results, _ = tried(grants_of(state), attempts)
    assert results == ["PermissionError"] * 5


@pytest.mark.skipif(landlock.abi() < landlock.NETWORK_ABI, reason="this kernel's Landlock knows no TCP")
@pytest.mark.parametrize(("network", "expected"), [(False, "PermissionError"), (True, "done")])
def test_a_trainer_of_one_device_connects_to_nobody(state: Path, network: bool, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tried(grants_of(state, network=network), [("connect", list(server.getsockname()))])[0] == [expected]


def test_a_process_that_cannot_be_confined_does_not_start(state: Path) -> None:
    """Without its own folder there is nothing that it could do."""
    grants = replace(grants_of(state), trainer_folder=str(state / "silo.key" / "own"))
    done = subprocess.run(
        grants.command((sys.executable, "-c", "print(1)")), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the trainer could not be confined: ")
