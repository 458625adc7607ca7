"""What the agent's gate holds back of secure aggregation."""

from pathlib import Path

import pytest
from silo_fakes import FakeLink, model_of, terms_of, train_task
from test_silo_outbound_gate import joined, policy_of

from anchorage.api.errors import AnchorageError
from anchorage.transport.messages import Evaluation, Task, TaskKind
from anchorage.transport.secure_aggregation.wire import Lost, as_auxiliary_data
from anchorage.transport.tensors.chunks import Manifest
from anchorage_silo.audit import AuditLog
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy

RUN = "of-the-run"


def reveal(attempt: str, round_number: int, *survivors: str) -> Task:
    message = as_auxiliary_data(Lost(survivors=survivors, sealed={}, commitments={}, signatures={}))
    return Task(f"{attempt}.revealshares", TaskKind.REVEAL_SHARES, round_number, Manifest("", 0, ()), message)


def asked(folder: Path, task: Task, run: str = RUN) -> None:
    """Ask an agent that was just started to reveal shares."""
    log = AuditLog(folder / "audit.jsonl", now=lambda: 12.5)
    try:
        log.record("join", digest=run)
        gate = OutboundGate(FakeLink(model_of(1.0)), Policy(), log, terms_of("FedAvg", secure=True), joined())
        gate.admit(task)
        gate.report(Evaluation(task.id, answer=b"{}"))
    finally:
        log.close()


def test_a_round_is_revealed_for_one_set_of_silos_even_after_a_restart(tmp_path: Path) -> None:
    asked(tmp_path, reveal("4.keys.a", 4, "a", "b", "c"))
    asked(tmp_path, reveal("4.keys.b", 4, "c", "a", "b"))
    with pytest.raises(AnchorageError, match="the sum of round 4 was revealed for other silos"):
        asked(tmp_path, reveal("4.keys.c", 4, "a", "b"))
    asked(tmp_path, reveal("5.keys.d", 5, "a", "b"))
    asked(tmp_path, reveal("4.keys.e", 4, "a", "b"), run="of-another-run")


@pytest.mark.parametrize("secure", [False, True])
def test_a_hospital_may_require_that_its_updates_are_hidden(tmp_path: Path, secure: bool) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", now=lambda: 12.5)
    policy, model = policy_of(requireSecureAggregation=True), model_of(1.0)
    gate = OutboundGate(FakeLink(model), policy, log, terms_of("FedAvg", secure=secure), joined())
    try:
        if secure:
            gate.admit(train_task(model))
        else:
            with pytest.raises(AnchorageError, match="requireSecureAggregation"):
                gate.admit(train_task(model))
    finally:
        log.close()
