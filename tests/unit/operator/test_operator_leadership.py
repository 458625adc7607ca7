"""Of several operators one leads at a time, whatever the network, the API server and clocks do: in fake time."""

import pytest
from fake_api.clock import Clock
from fake_api.memory import StoreApi
from fake_api.store import Store
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.transport.kube.client import ApiError
from anchorage_operator.leadership import LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, Leadership

AWAY = ApiError(0, "Unreachable", "nobody answers")


class Candidate(Leadership):
    """With a line to the API server of its own, and a clock on the wall of its own."""

    def __init__(self, store, clock, identity):
        self.ahead = 0.0
        since = 1_800_000_000.0 - clock.now
        super().__init__(
            StoreApi(store), "anchorage", "operator", identity, clock, lambda: clock.now + since + self.ahead
        )

    def cut(self):
        def refuse(*call):
            raise AWAY

        self.api.refuse = refuse

    def mend(self):
        self.api.refuse = lambda *call: None

    def lose_answers(self):
        """Let what is written arrive, and its answer get lost."""

        def lose(verb):
            if verb != "get":
                raise AWAY

        self.on_the_way_back(lose)

    def on_the_way_back(self, happens):
        """Let something happen between what the API server does and the arrival of its answer."""
        real_call = StoreApi._call

        def call(verb, *rest):
            answer = real_call(self.api, verb, *rest)
            happens(verb)
            return answer

        self.api._call = call


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def pair(store, clock):
    return Candidate(store, clock, "a_1"), Candidate(store, clock, "b_2")


def pass_time(clock, seconds, *candidates):
    """Let candidates take their turns for so long; no two may lead at any moment."""
    for _ in range(int(seconds / RETRY_SECONDS)):
        for each in candidates:
            each.turn()
        assert sum(each.leads() for each in candidates) <= 1
        clock.advance(RETRY_SECONDS)
        assert sum(each.leads() for each in candidates) <= 1


def lease(store):
    return store.get("leases", "anchorage", "operator")["spec"]


def test_the_first_one_leads_and_stays_the_leader(pair, store, clock):
    first, second = pair
    assert not first.leads()
    pass_time(clock, 600.0, first, second)
    assert (first.leads(), second.leads()) == (True, False)
    lease_before = lease(store)
    assert lease_before.pop("acquireTime") < lease_before["renewTime"] == "2027-01-15T08:09:58.000000Z"
    assert (lease_before["holderIdentity"], lease_before["leaseTransitions"], lease_before["leaseDurationSeconds"]) == (
        "a_1",
        0,
        LEASE_SECONDS,
    )


def test_a_dead_leader_is_followed_when_its_lease_ends_and_not_before(pair, store, clock):
    first, second = pair
    pass_time(clock, 60.0, first, second)
    last = clock.now - RETRY_SECONDS
    while not second.turn():
        assert clock.now - last < LEASE_SECONDS + RETRY_SECONDS
        clock.advance(RETRY_SECONDS)
    assert clock.now - last >= LEASE_SECONDS
    assert (lease(store)["holderIdentity"], lease(store)["leaseTransitions"]) == ("b_2", 1)


def test_a_leader_without_an_api_server_stops_before_its_lease_ends(pair, clock):
    first, second = pair
    first.turn()
    first.cut()
    clock.advance(RENEW_SECONDS - 0.1)
    assert first.turn()
    clock.advance(0.1)
    assert not first.leads() and RENEW_SECONDS < LEASE_SECONDS
    with pytest.raises(ApiError, match="does not hold the Lease"):
        first.require()
    pass_time(clock, 2.0 * LEASE_SECONDS, first, second)
    assert second.leads()
    first.mend()
    pass_time(clock, 2.0 * LEASE_SECONDS, first, second)
    assert second.leads() and first.problem == ""


def test_an_api_server_that_both_lose_gives_the_lead_back_to_either(pair, clock):
    for each in pair:
        each.turn()
        each.cut()
    pass_time(clock, 60.0, *pair)
    assert not any(each.leads() for each in pair)
    for each in pair:
        each.mend()
    pass_time(clock, 2.0 * LEASE_SECONDS, *pair)
    assert sum(each.leads() for each in pair) == 1


@pytest.mark.parametrize("step", [-86_400.0, -20.0, 20.0, 86_400.0])
def test_clocks_that_are_set_change_nothing(pair, clock, step):
    first, second = pair
    pass_time(clock, 10.0, first, second)
    for each in (second, first):
        each.ahead += step
        pass_time(clock, 60.0, first, second)
        assert first.leads()


def test_a_released_lease_is_taken_at_once(pair, store, clock):
    first, second = pair
    pass_time(clock, 10.0, first, second)
    first.release()
    assert not first.leads() and "holderIdentity" not in lease(store)
    assert second.turn() and not first.turn()
    first.release()
    assert lease(store)["holderIdentity"] == "b_2"


def test_who_does_not_lead_releases_nothing(pair, store, clock):
    first, second = pair
    pass_time(clock, 10.0, first, second)
    second.release()
    assert lease(store)["holderIdentity"] == "a_1"
    first.cut()
    first.release()
    assert not first.leads()


def test_a_container_that_is_started_again_in_its_pod_goes_on_at_once(pair, store, clock):
    pass_time(clock, 10.0, *pair)
    second = Candidate(store, clock, "a_1")
    assert second.turn() and lease(store)["leaseTransitions"] == 0


def test_two_that_write_at_once_do_not_both_lead(pair, store, clock):
    first, second = pair

    def meanwhile(verb, *call):
        if verb in ("create", "patch"):
            first.mend()
            assert second.turn()

    for _ in range(2):  # a Lease that is made, and one that was released
        first.api.refuse = meanwhile
        assert not first.turn() and second.leads()
        second.release()
        second._ended = False


def test_a_renewal_whose_answer_was_lost_does_not_count(pair, clock):
    first, second = pair
    pass_time(clock, 4.0, first, second)
    first.lose_answers()
    pass_time(clock, RENEW_SECONDS, first, second)
    assert not first.leads() and not second.leads(), "the Lease is renewed, and nobody knows"


def test_a_lead_counts_from_the_question_and_not_from_a_slow_answer(pair, clock):
    first, _ = pair
    first.on_the_way_back(lambda verb: verb == "create" and clock.advance(6.0))
    assert first.turn()
    clock.advance(RENEW_SECONDS - 6.0)
    assert not first.leads()


def test_a_turn_that_is_under_way_at_the_end_does_not_lead(pair):
    first, _ = pair
    first.on_the_way_back(lambda verb: verb == "create" and first.release())
    assert not first.turn() and not first.leads()


def test_a_missing_right_is_told(pair):
    first, _ = pair
    refusal = ApiError(403, "Forbidden", "cannot patch leases")

    def refuse(*call):
        raise refusal

    first.api.refuse = refuse
    assert not first.turn() and first.problem == "cannot patch leases"
    first.mend()
    assert first.turn() and first.problem == ""


def test_what_others_wrote_into_the_lease_is_bounded(pair, store, clock):
    first, _ = pair
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 2**31 - 1}
    store.put("leases", {"metadata": {"name": "operator"}, "spec": spec}, "anchorage")
    assert not first.turn()
    clock.advance(3600.0)
    assert first.turn()


FAULTS = st.sampled_from(["cut", "mend", "turn", "turn", "turn", "slow", "wall", "start"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), FAULTS, st.floats(0.0, 6.0)), max_size=80))
def test_there_are_never_two_leaders(steps):
    store, clock = Store(), Clock()
    candidates = [Candidate(store, clock, f"{n}") for n in range(3)]
    for at, what, seconds in steps:
        one = candidates[at]
        match what:
            case "cut" | "mend" | "turn":
                getattr(one, what)()
            case "slow":  # every answer takes a while, in which another one has a turn
                other = candidates[at - 1]
                one.on_the_way_back(lambda verb, other=other, seconds=seconds: clock.advance(seconds) or other.turn())
                one.turn()
                one.on_the_way_back(lambda verb: None)
            case "wall":
                one.ahead += 100.0 * (seconds - 3.0)
            case "start":
                one.release()
                candidates[at] = Candidate(store, clock, f"{at}")
        assert sum(each.leads() for each in candidates) <= 1
        clock.advance(seconds)
        assert sum(each.leads() for each in candidates) <= 1
