"""The agent and its commands wait for no pipe, socket or device where their files are expected."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from irregular_files import DESCRIPTIONS, KINDS, SECONDS, put

from anchorage.transport.pki import new_key
from anchorage_silo.files import map_existing
from anchorage_silo.main import main

pytestmark = [pytest.mark.timeout(SECONDS), pytest.mark.parametrize("kind", KINDS)]

LEAST = {
    "silo": "a", "federation": "derm", "server": "127.0.0.1:1", "enrolment": "127.0.0.1:1", "authority": "ca.pem", "token": "token",
    "state": "state", "labels": "None", "trainer": {"type": "Null"}, "patienceSeconds": 1,
}  # fmt: skip

COMMANDS: dict[str, tuple[Sequence[str], str]] = {
    "configuration": ((), "silo.yaml"),
    "policy": ((), "policy.yaml"),
    "authority": ((), "ca.pem"),
    "token": ((), "token"),
    "policy to check": (("policy", "check", "other.yaml"), "other.yaml"),
    "audit log": (("audit", "verify"), "state/audit.jsonl"),
    "table of images": (("images",), "state/trainer/image-names.jsonl"),
    "certificate": (("review",), "state/silo.crt"),
}
"""Command, and what it finds in the place of a file."""


@pytest.mark.parametrize("case", COMMANDS)
def test_the_agent_ends_at_once(
    tmp_path: Path, kind: str, case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, name = COMMANDS[case]
    policy = {"policy": "policy.yaml"} if case == "policy" else {}
    (tmp_path / "silo.yaml").write_text(yaml.safe_dump(LEAST | policy))
    for file in ("ca.pem", "token"):
        (tmp_path / file).write_text("x")
    (tmp_path / "state" / "trainer").mkdir(parents=True)
    new_key(tmp_path / "state" / "silo.key")
    (tmp_path / name).unlink(missing_ok=True)
    put(kind, tmp_path / name)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--config", "silo.yaml"])
    assert ended.value.code not in (0, None)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("ANC-")
    assert f"{DESCRIPTIONS[kind]}, not a regular file" in last


def test_what_the_trainer_leaves_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = put(kind, tmp_path / "update")
    with pytest.raises(OSError, match=DESCRIPTIONS[kind]):
        map_existing(path, 8, writable=False)
