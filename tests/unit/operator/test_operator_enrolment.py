"""From a signing request at the server to a member: who is signed, who waits, who is refused."""

from dataclasses import replace

import pytest
from fake_api.operator_world import World

from anchorage.transport.kube.client import ApiError
from anchorage.transport.pki import certificate_of, make_key, uris_of
from anchorage.transport.server_client import ServerError
from anchorage_operator.reconcile import IncompleteError
from anchorage_operator.secret_facts import decode_value

WEEK = 7 * 86_400.0


@pytest.fixture
def world():
    world = World()
    world.federation()
    world.silo("a", part=0)
    world.silo("b", part=1)
    world.settle()
    world.run_server()
    world.settle(3)
    return world


@pytest.fixture
def remote(world):
    world.silo("far")
    world.invite("far", "letter")
    world.settle(3)
    return world


def token_of(world, silo):
    return decode_value(world.store.get("secrets", "study", f"{silo}-enrolment"), "token").decode()


def members(world):
    return {member.name for member in world.server.members_known}


def test_a_managed_silo_is_signed_and_becomes_a_member(world):
    name, _ = world.ask("a", token_of(world, "a"))
    world.look()
    certificate = certificate_of(world.answer(name)["certificate"].encode(), "silo")
    assert uris_of(certificate) == ["anchorage://derm/silo/a"]
    world.settle(3)
    assert members(world) == {"a"}
    (member,) = world.server.members_known
    assert member.key == decode_value(world.store.get("secrets", "study", "a-enrolment"), "key").decode()


def test_a_remote_silo_waits_until_it_is_approved(remote):
    name, _ = remote.ask("far", "letter")
    remote.settle(4)
    assert remote.answer(name) is None and members(remote) == set()
    remote.approve("far")
    remote.settle(4)
    assert "certificate" in remote.answer(name) and members(remote) == {"far"}


def test_a_denied_silo_gets_nothing_and_a_member_that_is_denied_is_put_out(remote):
    remote.approve("far")
    remote.ask("far", "letter")
    remote.settle(4)
    assert members(remote) == {"far"}
    remote.approve("far", "False")
    remote.settle(4)
    assert members(remote) == set()


def test_a_wrong_token_is_refused(remote):
    remote.approve("far")
    name, _ = remote.ask("far", "not the letter")
    remote.settle(3)
    assert remote.answer(name)["code"] == "ANC-2001"


def test_an_expired_token_is_refused(remote):
    remote.approve("far")
    remote.clock.advance(10 * WEEK)
    name, _ = remote.ask("far", "letter")
    remote.settle(3)
    assert remote.answer(name)["code"] == "ANC-2003"


def test_a_used_token_is_refused_to_another_key_and_given_to_the_same(remote):
    remote.approve("far")
    _, key = remote.ask("far", "letter")
    remote.settle(4)
    thief, _ = remote.ask("far", "letter")
    remote.settle(4)
    assert remote.answer(thief)["code"] == "ANC-2002"
    second, _ = remote.ask("far", "letter", key=key)
    remote.settle(4)
    assert "certificate" in remote.answer(second)


def test_of_two_keys_at_once_one_is_signed_and_one_refused(remote):
    remote.approve("far")
    names = [remote.ask("far", "letter")[0] for _ in range(2)]
    remote.settle(5)
    answers = [remote.answer(name) for name in names]
    assert sorted("certificate" in answer for answer in answers) == [False, True]
    assert [answer["code"] for answer in answers if "code" in answer] == ["ANC-2002"]


def test_a_certificate_is_renewed_over_its_own_key(remote):
    remote.approve("far")
    _, key = remote.ask("far", "letter")
    remote.settle(4)
    before = remote.server.members_known
    remote.clock.advance(30 * WEEK)
    name, _ = remote.ask("far", key=key, kind="Renew")
    remote.settle(4)
    assert "certificate" in remote.answer(name)
    assert remote.server.members_known == before and members(remote) == {"far"}


def test_another_key_takes_the_place_of_a_silos_when_the_server_has_seen_it(remote):
    remote.approve("far")
    remote.ask("far", "letter")
    remote.settle(4)
    (first,) = remote.server.members_known
    name, _ = remote.ask("far", key=make_key(), kind="Renew")
    remote.settle(4)
    assert "certificate" in remote.answer(name)
    (both,) = remote.server.members_known
    assert (both.key, first.next_key) == (first.key, "") and both.next_key not in ("", first.key)
    remote.settle(4)
    assert remote.server.members_known == (both,), "nobody has shown it yet"

    shown = replace(both, key=both.next_key, next_key="")
    remote.server.members_known = (shown,)  # as the server changes it
    remote.settle(4)
    secret = remote.store.get("secrets", "study", "far-enrolment")
    assert decode_value(secret, "key").decode() == shown.key and "nextKey" not in secret["data"]
    assert remote.server.members_known == (shown,)
    remote.server.members_known = ()  # a server that lost its list
    remote.settle(4)
    assert remote.server.members_known == (shown,)


def test_a_nobody_is_not_signed(world):
    name, _ = world.ask("nobody", "token")
    world.settle(4)
    assert "certificate" not in (world.answer(name) or {})
    assert members(world) == set()


def test_a_request_whose_answer_was_lost_is_answered_again(world):
    name, _ = world.ask("a", token_of(world, "a"))
    put = world.server.put_answers

    def lost(answers):
        world.server.put_answers = put
        raise ServerError("ConnectionLost", "no")

    world.server.put_answers = lost
    with pytest.raises(IncompleteError):
        world.look()
    world.settle(3)
    assert "certificate" in world.answer(name)


def test_a_crash_between_secret_and_answer_costs_nothing(world):
    name, _ = world.ask("a", token_of(world, "a"))
    put, world.server.put_answers = world.server.put_answers, lambda answers: None
    world.look()
    assert world.answer(name) is None
    world.server.put_answers = put
    world.start()
    world.settle(3)
    assert "certificate" in world.answer(name)


def test_a_secret_that_cannot_be_written_means_no_certificate(world):
    name, _ = world.ask("a", token_of(world, "a"))

    def refuse(verb, kind, _):
        if (verb, kind) == ("patch", "Secret"):
            raise ApiError(500, "InternalError", "etcd")

    world.api.refuse = refuse
    with pytest.raises(IncompleteError):
        world.look()
    assert world.answer(name) is None
    world.api.refuse = lambda *call: None
    world.settle(3)
    assert "certificate" in world.answer(name)


def test_a_removed_silo_is_put_out_and_the_others_stay(world):
    for silo in ("a", "b"):
        world.ask(silo, token_of(world, silo))
    world.settle(4)
    assert members(world) == {"a", "b"}
    world.store.delete("silos", "study", "b")
    world.settle(3)
    assert members(world) == {"a"}


def test_a_restarted_server_is_told_its_members_again(world):
    world.ask("a", token_of(world, "a"))
    world.settle(4)
    world.server.members_known = ()
    world.settle(2)
    assert members(world) == {"a"}


def test_no_token_and_no_key_is_logged(world, caplog):
    caplog.set_level("DEBUG")
    token = token_of(world, "a")
    world.ask("a", token)
    world.settle(4)
    assert token not in caplog.text and "PRIVATE KEY" not in caplog.text and "BEGIN" not in caplog.text
