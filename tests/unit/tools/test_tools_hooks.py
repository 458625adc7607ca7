"""What runs before a commit is what `make check` runs, and it finds a private key."""

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_each_part_of_make_check_is_a_local_hook() -> None:
    (parts,) = re.findall(r"^check: (.+?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    assert {hook["entry"] for hook in repositories[0]["hooks"]} == {f"make {part}" for part in parts.split()}


def test_a_private_key_is_found(tmp_path: Path) -> None:
    def keys() -> subprocess.CompletedProcess[str]:
        command = ["make", "-f", ROOT / "Makefile", "keys"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert keys().returncode != 0, "it must not pass outside a repository"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    file = tmp_path / "key.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert keys().returncode == 0
    for kind in ("", "EC ", "RSA ", "OPENSSH ", "ENCRYPTED "):
        file.write_text(f"-----BEGIN {kind}PRIVATE KEY-----\n")
        assert keys().returncode != 0, kind
