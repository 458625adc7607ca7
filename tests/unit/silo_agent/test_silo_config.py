from pathlib import Path
from typing import Any

import pytest
import yaml

from anchorage.api.mistakes import DocumentError
from anchorage.api.single import read_document
from anchorage_silo.config import SiloConfig

LEAST = {
    "silo": "a", "federation": "derm", "server": "server:8443", "enrolment": "server:8444", "authority": "ca.pem",
    "state": "state", "labels": "None", "trainer": {"type": "Null"},
}  # fmt: skip


def read(tmp_path: Path, **values: Any) -> SiloConfig:
    (tmp_path / "silo.yaml").write_text(yaml.safe_dump(LEAST | values))
    return read_document(tmp_path / "silo.yaml", SiloConfig)


def test_outside_a_cluster_nothing_listens_and_nothing_stays(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert (config.probes_listen, config.stay, config.proxy, config.patience_seconds) == (None, False, None, 120)


@pytest.mark.parametrize("proxy", ["http://proxy:3128", "http://10.0.0.1:8080/", "http://[fd00::1]:3128"])
def test_a_proxy(tmp_path: Path, proxy: str) -> None:
    assert read(tmp_path, proxy=proxy).proxy == proxy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("proxy", "https://proxy:3128"),
        ("proxy", "http://proxy"),
        ("proxy", "proxy:3128"),
        ("proxy", "http://ada:secret@proxy:3128"),
        ("proxy", "http://proxy:3128/path"),
        ("probesListen", "8080"),
        ("patienceSeconds", -1),
        ("patienceSeconds", "120"),
        ("stay", "yes please"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(DocumentError, match=field):
        read(tmp_path, **{field: value})
