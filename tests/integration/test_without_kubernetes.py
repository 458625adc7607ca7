"""docs/without-kubernetes.md: its script, its service and its container, as far as a machine without either goes."""

import configparser
import json
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from printed_pages import ROOT, blocks, environment_in, sh
from silo_site import HURRIED, Agent, Site

from fedctl.invitation import _yaml
from makers.charts.silo_agent_chart import Enrolment

PAGE = "without-kubernetes.md"
AGENT_IMAGE = (ROOT / "images/agent/Dockerfile").read_text()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site")
    yield site
    site.close()


def unit() -> str:
    (text,) = blocks(PAGE, "With systemd", "ini")
    return text


def test_enrolled_and_joined_by_the_page_s_commands(site: Site, tmp_path: Path) -> None:
    authority = site.authority.certificate_path.read_text()
    settings = {"federation": "derm", "silo": "a", "labels": "None", "server": site.listen, "enrolment": site.enrolment}
    settings |= {"authority": authority, "token": site.tokens.create("a")}
    assert settings.keys() | {"existingSecret"} == {
        field.alias or name for name, field in Enrolment.model_fields.items()
    }
    place = tmp_path / "hospital"
    place.mkdir()
    (place / "enrolment.yaml").write_text(_yaml({"enrolment": settings}))
    etc, state = place / "etc", place / "state"
    (commands,) = blocks(PAGE, "With systemd", "bash")
    (command,) = (line for line in commands.splitlines() if "configure" in line)
    command = command.replace("/opt/anchorage/bin/", "").replace("/etc/anchorage", str(etc))
    environment = environment_in(place)
    sh(command.replace("/var/lib/anchorage", str(state)), place, environment)
    assert (etc / "token").stat().st_mode & 0o077 == 0
    config = yaml.safe_load((etc / "silo.yaml").read_text())
    assert (config.pop("dataRoot"), config.pop("data")["claimName"]) == ("/srv", "images")
    changes = {"trainer": {"type": "Null", "step": "1", "samples": 7}, "probesListen": "127.0.0.1:0"}
    (etc / "silo.yaml").write_text(yaml.safe_dump({**config, **changes}))
    service = configparser.ConfigParser()
    service.optionxform = str  # type: ignore[assignment,method-assign]
    service.read_string(unit())
    program, *arguments = shlex.split(service["Service"]["ExecStart"])
    assert (Path(program).name, arguments) == ("anchorage-silo", ["--config", "/etc/anchorage/silo.yaml"])
    review, approve = blocks(PAGE, "Afterwards", "bash")[0].replace("/etc/anchorage", str(etc)).splitlines()
    agent = Agent(etc / "silo.yaml", code=HURRIED)
    try:
        agent.await_line("ANC-2214 ApprovalNeeded")
        digest = json.loads(sh(f"{review} -o json", place, environment))["digest"]
        sh(approve.replace("DIGEST", digest), place, environment)
        assert site.joined().silo == "a"
        agent.await_ready("Connected")
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0, "a service that was stopped did not fail"
    finally:
        agent.close()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this machine has no systemd-analyze")
    program = tmp_path / "anchorage-silo"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "anchorage-silo.service"
    path.write_text(unit().replace("/opt/anchorage/bin/anchorage-silo", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=120, check=False)
    complaints = [line for line in done.stderr.splitlines() if path.name in line]
    assert complaints == []


def test_the_container_has_what_the_configuration_names() -> None:
    (script,) = blocks(PAGE, "With podman", "bash")
    folder, configure, owner, run = script.splitlines()
    assert folder.split()[-1] in shlex.split(configure)
    in_container = shlex.split(configure)
    assert in_container[in_container.index("configure") - 1] == shlex.split(run)[-1]
    words = shlex.split(run)
    assert words[:3] == ["podman", "run", "--detach"]
    mounted = {words[i + 1].split(":")[1] for i, word in enumerate(words) if word == "--volume"}
    assert mounted == {"/etc/anchorage", "/var/lib/anchorage", "/srv/images"}
    assert words[-1].startswith("registry.example.org/fl/anchorage-agent:")
    assert owner.split()[2] in f"65532:65532 {AGENT_IMAGE}" and "USER 65532:65532" in AGENT_IMAGE
    assert 'CMD ["--config", "/etc/anchorage/silo.yaml"]' in AGENT_IMAGE
