"""The images' Dockerfiles, pins and the script that builds them with whatever builder there is."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helm_charts import CHARTS

ROOT = CHARTS.parent
MODULES = {"operator": "anchorage_operator", "server": "anchorage_server", "agent": "anchorage_silo"}
TOOLS = ("bash", "dirname", "git", "mktemp", "rm", "sed")


def pins(folder: str) -> list[str]:
    """Return the pins of a requirements file, which has nothing else but its first line."""
    lines = (ROOT / "images" / folder / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)] == []
    return lines


@pytest.mark.parametrize(("part", "module"), MODULES.items())
def test_every_image_has_its_file(part: str, module: str) -> None:
    text = (ROOT / "images" / part / "Dockerfile").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("FROM $")] == ["FROM ${BASE} AS pip", "FROM ${BASE}"]
    assert [line for line in text.splitlines() if " -r " in line and "--require-hashes" not in line] == []
    assert "\nUSER 65532:65532\n" in text
    assert f'ENTRYPOINT ["python3", "-m", "{module}"]' in text
    assert ("COPY --from=learning" in text) == (part != "operator")


def test_torch_is_in_the_layer_that_server_and_agent_share() -> None:
    assert any(line.startswith("torch==") for line in pins("learning"))
    shared = {line.partition("==")[0] for line in pins("learning")}
    for part in ("server", "agent"):
        assert not shared & {line.partition("==")[0] for line in pins(part)}
    assert "torch" not in {line.partition("==")[0] for line in pins("operator")}


@pytest.mark.parametrize("part", [*MODULES, "learning"])
def test_nothing_is_in_an_image_that_only_a_compiler_needs(part: str) -> None:
    assert "triton" not in {line.partition("==")[0] for line in pins(part)}


@pytest.mark.parametrize("part", ["server", "agent"])
def test_server_and_agent_can_send_traces(part: str) -> None:
    names = {line.partition("==")[0] for line in (*pins(part), *pins("learning"))}
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "requests", "protobuf"} <= names


def test_dockerfiles_of_server_and_agent_share_their_first_stages() -> None:
    stages = [(ROOT / "images" / part / "Dockerfile").read_text(encoding="utf-8") for part in ("server", "agent")]
    shared = {text[text.index("ARG BASE") : text.index("FROM pip AS build")] for text in stages}
    assert len(shared) == 1, "otherwise their large layer differs"


def build(tmp_path: Path, builders: tuple[str, ...], *parts: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run the script where only these builders are; return its status, its complaint and the builders' calls."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    calls.touch()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    for name in builders:
        (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {calls}\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    environment = {"PATH": str(folder), "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **variables}
    command = [str(folder / "bash"), str(ROOT / "images" / "build.sh"), *parts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=os.sep)
    return done.returncode, done.stderr, calls.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("there", "asked", "used"),
    [(("docker", "podman", "buildah"), "", "buildah"), (("podman",), "", "podman"), (("docker", "podman"), "docker", "docker")],
)  # fmt: skip
def test_whatever_builder_is_there_is_used(tmp_path: Path, there: tuple[str, ...], asked: str, used: str) -> None:
    status, error, calls = build(tmp_path, there, BUILDER=asked, BUILD_FLAGS="--pull --quiet", BASE="b:1")
    assert status == 0, error
    assert [call.split()[0] for call in calls] == [used] * 3
    for part, call in zip(MODULES, calls, strict=True):
        assert f"--tag localhost/anchorage-{part}:" in call
        assert f"--file images/{part}/Dockerfile ." in call
        assert "--build-arg BASE=b:1" in call
        assert "--pull --quiet" in call
        assert ("--timestamp" in call) == (used != "docker")


def test_one_part_under_another_name(tmp_path: Path) -> None:
    _, _, (call,) = build(tmp_path, ("buildah",), "agent", REGISTRY="r.example.org/fl", PIP_CONF="/own/pip.conf")
    assert "--tag r.example.org/fl/anchorage-agent:" in call
    assert "--secret id=pip,src=/own/pip.conf" in call
    assert "BASE=" not in call


@pytest.mark.parametrize(
    ("base", "pinned"),
    [
        ("", False),
        ("r.example.org/python:3.11", False),
        ("r.example.org/python@sha256:12ab", False),
        (f"r.example.org/python@sha256:{'0a' * 32}", True),
    ],
)
def test_a_release_has_a_base_by_its_digest(tmp_path: Path, base: str, pinned: bool) -> None:
    for release, folder in ("", tmp_path / "try"), ("yes", tmp_path / "release"):
        folder.mkdir()
        status, error, calls = build(folder, ("podman",), "agent", BASE=base, RELEASE=release)
        assert ("named by a tag" in error) == (not pinned)
        assert (status, len(calls)) == ((0, 1) if pinned or not release else (2, 0))


def test_without_a_builder_it_says_so(tmp_path: Path) -> None:
    status, error, calls = build(tmp_path, ())
    assert (status, calls) == (2, [])
    assert "install buildah, docker or podman" in error
