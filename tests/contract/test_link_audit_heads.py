"""Heads of audit logs over gRPC: one per silo is kept and told, only if the silo's own key signed it, and no message is lost for one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from link_world import FEDERATION, PATIENCE, World, announcement_of, model_of, order_of, train_task

from anchorage.transport.grpc import GrpcServerLink
from anchorage.transport.grpc.single_calls import held_head
from anchorage.transport.messages import Announced, Assigned, Evaluated, Evaluation, TaskFailed, TaskKind
from anchorage.transport.pki import Credentials, load_key, make_key, silo_uri
from anchorage.transport.signed_head import SignedHead
from anchorage_server.held_heads import HeldHeads

MODEL, UPDATE = model_of(0.1), model_of(0.1, seed=1)


def head_of(files: Credentials, lines: int, digest: bytes = bytes(32), silo: str = "a") -> SignedHead:
    return SignedHead.sign(load_key(files.key), silo_uri(FEDERATION, silo), lines, digest)


def assigned(world: World, silo: GrpcServerLink, number: int, kind: TaskKind = TaskKind.TRAIN) -> str:
    task = replace(train_task(MODEL, number), kind=kind)
    world.link.offer(MODEL)
    world.link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    return task.id


def announce(world: World, silo: GrpcServerLink, number: int, head: SignedHead) -> None:
    task = train_task(MODEL, number)
    assigned(world, silo, number)
    silo.announce(replace(announcement_of(task, UPDATE), audit_head=head))


def test_the_newest_head_is_kept_and_told_to_its_silo_alone(serve, dial, identities, tmp_path: Path) -> None:
    link, port = serve()
    a, b, server = identities.silo("a"), identities.silo("b"), f"127.0.0.1:{port}"
    world, silo = World(link, lambda name: None), dial(port)
    assert held_head(server, a) is None
    for number, head in enumerate((head_of(a, 3), head_of(a, 5), head_of(a, 4)), start=1):
        announce(world, silo, number, head)
        assert world.events_until(Announced).announcement.trained
    task = assigned(world, silo, 4, TaskKind.EVALUATE)
    silo.report(Evaluation(task, {"validation": np.array([1, 2])}, audit_head=head_of(a, 9, b"x" * 32)))
    assert world.events_until(Evaluated).evaluation.tally["validation"].tolist() == [1, 2]
    silo.close()  # whose calls are over
    head_at_server = held_head(server, a)
    assert head_at_server is not None and (head_at_server.lines, head_at_server.digest) == (9, b"x" * 32)
    assert head_at_server.is_by(load_key(a.key).public_key(), silo_uri(FEDERATION, "a"))
    assert held_head(server, b) is None
    assert HeldHeads(tmp_path / "audit-heads").newest("a") == head_at_server, "not on the disk"
    assert [path.name for path in (tmp_path / "audit-heads").iterdir()] == ["a.json"]


def test_a_head_that_another_signed_is_not_kept_and_what_it_came_with_counts(
    serve, dial, identities, caplog: pytest.LogCaptureFixture
) -> None:
    link, port = serve()
    a, b = identities.silo("a"), identities.silo("b")
    world, silo = World(link, lambda name: None), dial(port)
    stranger = SignedHead.sign(make_key(), silo_uri(FEDERATION, "a"), 7, bytes(32))
    wrong = (stranger, head_of(b, 7), head_of(a, 7, silo="b"), replace(head_of(a, 7), lines=8))
    for number, head in enumerate((*wrong, replace(head_of(a, 7), signature=b"")), start=1):
        announce(world, silo, number, head)
        assert world.events_until(Announced).announcement.task == train_task(MODEL, number).id
    assert silo.next_order(0.0) is None
    silo.close()
    assert held_head(f"127.0.0.1:{port}", a) is None
    assert "audit head: it is not signed" in caplog.text


@pytest.mark.parametrize(
    "change",
    [{"lines": 0}, {"lines": 2**60}, {"digest": b"x" * 33}, {"signature": b"x" * 100_000}],
    ids=["no line", "too many lines", "digest", "signature"],
)
def test_a_head_out_of_bounds_closes_the_task(serve, dial, identities, change: dict[str, object]) -> None:
    link, port = serve()
    world, silo = World(link, lambda name: None), dial(port)
    announce(world, silo, 1, replace(head_of(identities.silo("a"), 7), **change))
    event = world.events_until(TaskFailed)
    assert (event.code, event.message) == ("ANC-2163", "audit head: it is none of a log")


def test_a_disk_that_fails_stops_no_announcement(serve, dial, identities, tmp_path: Path) -> None:
    (tmp_path / "audit-heads").write_text("a file where the folder should be")
    link, port = serve()
    world, silo = World(link, lambda name: None), dial(port)
    announce(world, silo, 1, head_of(identities.silo("a"), 3))
    assert world.link.next_event(world.link._clock.now() + PATIENCE) is not None
    assert held_head(f"127.0.0.1:{port}", identities.silo("a")) is None
