from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anchorage.transport.pki import Authority, SigningRequest, new_key, silo_uri
from anchorage_silo.metrics import prometheus_text
from anchorage_silo.state import AgentState


@pytest.fixture
def state(tmp_path: Path) -> AgentState:
    return AgentState(tmp_path / "silo.crt")


def figures(state: AgentState) -> dict[str, float]:
    families = text_string_to_metric_families(prometheus_text(state).decode())
    return {"".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}


def test_ready_while_connected_and_when_the_run_is_over(state: AgentState) -> None:
    assert state.ready() == (False, "Starting: the agent has just started")
    state.waiting = "ReadingImages: many"
    assert state.ready() == (False, "ReadingImages: many")
    state.set_joined(12)
    assert state.ready() == (False, "ServerUnreachable: the first connection is being made")
    state.contact.record_opened()
    assert state.ready()[0] and state.ready()[1].startswith("Connected: ")
    state.contact.record_closed("no route to host")
    assert state.ready() == (False, "ServerUnreachable: no route to host")
    state.finished = "all rounds are committed"
    assert state.ready() == (True, "Finished: all rounds are committed")


def test_an_agent_that_waits_has_begun(state: AgentState) -> None:
    assert not state.begun
    state.waiting = "ANC-2009 EnrolmentPending: not now"
    assert state.begun and not state.ready()[0]
    state.set_joined(12)
    assert state.begun


def test_figures_before_anything_has_happened(state: AgentState) -> None:
    figures_now = figures(state)
    assert "anchorage_silo_certificate_expiry_timestamp_seconds" not in figures_now
    assert {value for name, value in figures_now.items() if "volume" not in name} == {0.0}
    assert 0 < figures_now["anchorage_silo_volume_free_bytes"] <= figures_now["anchorage_silo_volume_size_bytes"]


def test_figures(state: AgentState, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority", "derm", now=lambda: 1_800_000_000.0)
    request = SigningRequest.make(new_key(tmp_path / "silo.key"), silo_uri("derm", "a"))
    (tmp_path / "silo.crt").write_bytes(authority.issue_silo(request, "a"))
    state.set_joined(12)
    state.contact.record_opened()
    for task in ("1.train", "1.train", "2.train"):
        state.count_trained(task)
    state.count("evaluated")
    state.count("failed")
    state.contact.count_received(5)
    state.contact.count_sent(3)
    figures_now = figures(state)
    assert figures_now["anchorage_silo_ready"] == figures_now["anchorage_silo_connected"] == 1
    assert figures_now["anchorage_silo_samples"] == 12
    assert figures_now["anchorage_silo_certificate_expiry_timestamp_seconds"] == 1_800_000_000 + 365 * 86_400
    tasks = {
        outcome: figures_now[f"anchorage_silo_tasks_total{outcome}"] for outcome in ("trained", "evaluated", "failed")
    }
    assert tasks == {"trained": 2, "evaluated": 1, "failed": 1}
    assert (
        figures_now["anchorage_silo_model_bytes_totaldown"] == 5
        and figures_now["anchorage_silo_model_bytes_totalup"] == 3
    )
