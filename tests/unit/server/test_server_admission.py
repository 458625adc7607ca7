"""Members, requests for certificates, and when a run started: what the server keeps for a cluster's operator."""

from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, identity, storage
from anchorage.transport.pki import SigningRequest, key_fingerprint, make_key, silo_uri
from anchorage_server.access import ClusterAdmission
from anchorage_server.members import Change, Member, MemberList, Members
from anchorage_server.request_queue import CAPACITY, FORGOTTEN_SECONDS, KEPT_SECONDS, RequestAnswer, RequestQueue
from anchorage_server.start import RunStart


class FakeClock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def listed(*names: str, key: str = "", generation: int = 0) -> MemberList:
    members = tuple(Member(name=name, labels="None", key=key) for name in names)
    return MemberList(members=members, generation=generation)


def nothing(change: Change) -> None:
    """Take no notice."""


def test_members_are_admitted_by_name_and_key(tmp_path: Path) -> None:
    members, key = Members(tmp_path / "members.json"), "a" * 64
    assert not members.admits("a", key)
    members.replace(listed("a", key=key), nothing)
    assert members.admits("a", key)
    assert not members.admits("a", "b" * 64)
    assert not members.admits("b", key)
    members.replace(listed("a"), nothing)
    assert members.admits("a", "b" * 64)


def test_members_survive_a_restart_in_their_order(tmp_path: Path) -> None:
    Members(tmp_path / "members.json").replace(listed("c", "a", "b", generation=7), nothing)
    restarted = Members(tmp_path / "members.json")
    assert restarted.names == ("c", "a", "b")
    assert restarted.list.generation == 7


def test_a_damaged_list_of_members_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "members.json").write_text('{"members": [{"name": ')
    assert Members(tmp_path / "members.json").names == ()


def test_a_change_says_what_changed(tmp_path: Path) -> None:
    changes: list[Change] = []
    members = Members(tmp_path / "members.json")
    for new in (
        listed("a", "b", key="a" * 64),
        listed("a", "b", key="a" * 64, generation=2),
        listed("b", "a", key="b" * 64),
        listed("b"),
    ):
        members.replace(new, changes.append)
    assert changes == [
        Change(("a", "b"), False, ()),
        Change(("a", "b"), True, ()),
        Change(("b", "a"), False, ("b", "a")),
        Change(("b",), False, ()),
    ]


def test_members_that_cannot_be_kept_are_not_taken(tmp_path: Path) -> None:
    members = Members(tmp_path / "gone" / "members.json")
    with pytest.raises(AnchorageError) as caught:
        members.replace(listed("a"), nothing)
    assert caught.value.failure is storage.NOT_WRITABLE
    assert members.names == ()


def pending(requests: RequestQueue, silo: str = "a", csr: bytes = b"csr", token: str = "t") -> str:
    with pytest.raises(AnchorageError) as caught:
        requests.ask("Enrol", silo, csr, token)
    assert caught.value.failure is identity.ENROLMENT_PENDING
    assert "t" not in caught.value.message.split()
    return requests.pending()[-1].id


def test_the_same_request_is_the_same_entry(clock: FakeClock) -> None:
    requests = RequestQueue(clock)
    names = [
        pending(requests),
        pending(requests),
        pending(requests, csr=b"other"),
        pending(requests, token="u"),
        pending(requests, "b"),
    ]
    assert len({*names}) == 4
    assert len(requests.pending()) == 4


def test_an_answer_is_kept_for_a_while(clock: FakeClock) -> None:
    requests = RequestQueue(clock)
    name = pending(requests)
    assert requests.answer([RequestAnswer(id=name, certificate="PEM"), RequestAnswer(id="x", code="ANC-2001")]) == ["x"]
    assert requests.pending() == []
    clock.time += KEPT_SECONDS
    assert requests.ask("Enrol", "a", b"csr", "t") == b"PEM"
    clock.time += 1
    assert pending(requests) == name


def test_the_first_answer_counts(clock: FakeClock) -> None:
    requests = RequestQueue(clock)
    name = pending(requests)
    requests.answer([RequestAnswer(id=name, code="ANC-2010", message="denied")])
    requests.answer([RequestAnswer(id=name, certificate="PEM")])
    with pytest.raises(AnchorageError, match="denied"):
        requests.ask("Enrol", "a", b"csr", "t")


def test_a_request_that_nobody_asks_for_any_more_is_forgotten(clock: FakeClock) -> None:
    requests = RequestQueue(clock)
    pending(requests, "gone")
    for _ in range(3):
        pending(requests, "here")
        clock.time += FORGOTTEN_SECONDS
    assert [request.silo for request in requests.pending()] == ["here"]


def test_the_desk_is_bounded_and_makes_room_again(clock: FakeClock) -> None:
    requests = RequestQueue(clock)
    for number in range(CAPACITY):
        pending(requests, csr=str(number).encode())
    with pytest.raises(AnchorageError) as caught:
        requests.ask("Enrol", "late", b"csr", "t")
    assert caught.value.failure is identity.TOO_MANY_REQUESTS
    requests.answer([RequestAnswer(id=requests.pending()[0].id, certificate="PEM")])
    pending(requests, "late")
    for csr, token in ((b"x" * 8193, "t"), (b"x", "t" * 257)):
        with pytest.raises(AnchorageError) as caught:
            requests.ask("Enrol", "a", csr, token)
        assert caught.value.failure is identity.REQUEST_REFUSED


def test_a_renewal_is_the_operators_to_decide_over_another_key_too(tmp_path: Path, clock: FakeClock) -> None:
    admission = ClusterAdmission("derm", tmp_path, clock)
    csr = SigningRequest.make(make_key(), silo_uri("derm", "a"))
    admission.members.replace(listed("a", key=key_fingerprint(csr)), nothing)
    with pytest.raises(AnchorageError) as caught:
        admission.renew(csr, "a")
    assert caught.value.failure is identity.ENROLMENT_PENDING
    for other in (SigningRequest.make(make_key(), silo_uri("derm", "b")), b"rubbish"):
        with pytest.raises(AnchorageError) as caught:
            admission.renew(other, "a")
        assert caught.value.failure is identity.REQUEST_REFUSED
    changed = SigningRequest.make(make_key(), silo_uri("derm", "a"))
    with pytest.raises(AnchorageError):
        admission.renew(changed, "a")
    admission.requests.answer([RequestAnswer(id=r.id, certificate="PEM") for r in admission.requests.pending()])
    assert admission.renew(csr, "a") == b"PEM"
    with pytest.raises(AnchorageError, match="not in the list of members yet") as caught:
        admission.renew(changed, "a")
    assert caught.value.failure is identity.ENROLMENT_PENDING
    both = Member(name="a", key=key_fingerprint(csr), next_key=key_fingerprint(changed))
    admission.members.replace(MemberList(members=(both,)), nothing)
    assert admission.renew(changed, "a") == b"PEM"


def test_the_next_key_takes_the_place_of_a_members_when_it_is_shown(tmp_path: Path) -> None:
    members, changes = Members(tmp_path / "members.json"), []
    both = MemberList(members=(Member(name="a", key="1" * 64, next_key="2" * 64), Member(name="b", key="1" * 64)))
    members.replace(both, changes.append)
    assert members.admits("a", "1" * 64) and not members.admits("b", "2" * 64) and not members.admits("a", "")
    assert members.admits("a", "2" * 64) and not members.admits("a", "1" * 64)
    restarted = Members(tmp_path / "members.json")
    assert not restarted.admits("a", "1" * 64) and restarted.admits("a", "2" * 64)
    assert restarted.list.members[0] == Member(name="a", key="2" * 64)
    restarted.replace(restarted.list.model_copy(update={"generation": 9}), changes.append)
    assert changes[-1].rekeyed == ()


def test_the_start_is_kept_and_a_pause_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "started.json"
    first = RunStart(file, 100.0, None)
    assert (first.first, first.counted_from) == (100.0, 100.0)
    killed = RunStart(file, 150.0, 120.0)
    assert (killed.first, killed.counted_from) == (100.0, 100.0)
    killed.note_stop(160.0)
    resumed = RunStart(file, 200.0, 120.0)
    assert (resumed.first, resumed.counted_from) == (100.0, 140.0)
    killed_again = RunStart(file, 250.0, 120.0)
    assert killed_again.counted_from == 140.0


def test_the_weights_that_a_run_started_from_are_those_of_its_first_round(tmp_path: Path) -> None:
    file = tmp_path / "started.json"
    assert RunStart(file, 100.0, None, "models:/m/1").initial == "models:/m/1"
    assert RunStart(file, 110.0, None, "models:/m/2").initial == "models:/m/2"  # no round was committed in between
    assert RunStart(file, 130.0, 120.0, "models:/m/3").initial == "models:/m/2"
    assert RunStart(file, 140.0, 120.0).initial == "models:/m/2"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"first": null, "paused": 0, "stopped": null}'])
def test_a_start_that_cannot_be_read_is_the_first_commits(tmp_path: Path, content: str) -> None:
    (tmp_path / "started.json").write_text(content)
    assert RunStart(tmp_path / "started.json", 200.0, 120.0).counted_from == 120.0
    assert RunStart(tmp_path / "other.json", 200.0, None).counted_from == 200.0
