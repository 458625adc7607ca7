from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anchorage.transport.pki import Authority, SigningRequest, new_key, silo_uri
from anchorage_silo.metrics import exposition
from anchorage_silo.standing import Standing


@pytest.fixture
def standing(tmp_path: Path) -> Standing:
    return Standing(tmp_path / "silo.crt")


def figures(standing: Standing) -> dict[str, float]:
    families = text_string_to_metric_families(exposition(standing).decode())
    return {"".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}


def test_ready_while_connected_and_when_the_run_is_over(standing: Standing) -> None:
    assert standing.ready() == (False, "Starting: the agent has just started")
    standing.waits("ReadingImages: many")
    assert standing.ready() == (False, "ReadingImages: many")
    standing.joined(12)
    assert standing.ready() == (False, "ServerUnreachable: the first connection is being made")
    standing.contact.opened()
    assert standing.ready()[0] and standing.ready()[1].startswith("Connected: ")
    standing.contact.closed("no route to host")
    assert standing.ready() == (False, "ServerUnreachable: no route to host")
    standing.finished("all rounds are committed")
    assert standing.ready() == (True, "Finished: all rounds are committed")


def test_figures_before_anything_has_happened(standing: Standing) -> None:
    found = figures(standing)
    assert "anchorage_silo_certificate_expiry_timestamp_seconds" not in found
    assert set(found.values()) == {0.0}


def test_figures(standing: Standing, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority", "derm", now=lambda: 1_800_000_000.0)
    request = SigningRequest.make(new_key(tmp_path / "silo.key"), silo_uri("derm", "a"))
    (tmp_path / "silo.crt").write_bytes(authority.issue_silo(request, "a"))
    standing.joined(12)
    standing.contact.opened()
    for task in ("1.train", "1.train", "2.train"):
        standing.trained(task)
    standing.evaluated()
    standing.failed()
    standing.contact.received(5)
    standing.contact.sent(3)
    found = figures(standing)
    assert found["anchorage_silo_ready"] == found["anchorage_silo_connected"] == 1
    assert found["anchorage_silo_samples"] == 12
    assert found["anchorage_silo_certificate_expiry_timestamp_seconds"] == 1_800_000_000 + 365 * 86_400
    tasks = {outcome: found[f"anchorage_silo_tasks_total{outcome}"] for outcome in ("trained", "evaluated", "failed")}
    assert tasks == {"trained": 2, "evaluated": 1, "failed": 1}
    assert found["anchorage_silo_model_bytes_totaldown"] == 5 and found["anchorage_silo_model_bytes_totalup"] == 3
