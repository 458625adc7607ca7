"""The files of a release: every pin of an image is in its bill, and a changed file is noticed without a network."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PIN = re.compile(r"^(\S+)==(\S+) --hash=sha256:(\w+)$", re.MULTILINE)


IMAGES = {
    "anchorage-operator": ["operator"],
    "anchorage-server": ["learning", "server"],
    "anchorage-agent": ["learning", "agent"],
    "anchorage": ["operator", "learning", "server", "agent"],
}


def packages(path: Path) -> set[tuple[str, str, str]]:
    components = json.loads(path.read_text())["components"]
    return {
        (each["name"], each["version"], each["externalReferences"][0]["hashes"][0]["content"]) for each in components
    }


@pytest.mark.integration
def test_bills_list_what_images_are_built_of_and_signed_checksums_notice_a_change(tmp_path: Path) -> None:
    folder, key = tmp_path / "dist", tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    environment = {**os.environ, "SIGNING_KEY": str(key)}
    command = [ROOT / "tools" / "release.sh", sys.executable, folder]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)
    for name, parts in IMAGES.items():
        (bill,) = folder.glob(f"{name}-[0-9]*.cdx.json")
        pins = {pin for part in parts for pin in PIN.findall((ROOT / "images" / part / "requirements.txt").read_text())}
        assert pins and packages(bill) == pins
    signers = tmp_path / "allowed_signers"
    signers.write_text('publisher namespaces="anchorage" ' + (tmp_path / "key.pub").read_text())

    def verified() -> bool:
        command = f"ssh-keygen -Y verify -f {signers} -I publisher -n anchorage -s SHA256SUMS.sig < SHA256SUMS"
        return subprocess.run(command, shell=True, cwd=folder, capture_output=True).returncode == 0

    def whole() -> bool:
        return subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder, capture_output=True).returncode == 0

    assert verified() and whole()
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    (wheel,) = folder.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    assert not whole()
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("a", "b", 1))
    assert not verified()


@pytest.mark.parametrize("base", ["", "registry.example.org/python:3.11", "registry.example.org/python@sha256:short"])
def test_a_release_is_built_on_no_base_that_a_tag_names(base: str) -> None:
    environment = {**os.environ, "BUILDER": "false", "RELEASE": "yes", "BASE": base}
    ended = subprocess.run([ROOT / "images" / "build.sh"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2 and "name@sha256:" in ended.stderr
