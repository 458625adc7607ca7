"""One member lies in secure aggregation: no wrong model is committed, the run goes on, and the member is named where it can be told."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from lying_members import LONGEST_SEARCH, LOST, Case, Hospitals, is_sought, lies

from anchorage.api.errors.rounds import IMPOSSIBLE_SUM, QUORUM_LOST
from anchorage.transport.messages import Joined, Profile, TaskKind


@pytest.fixture(scope="module")
def hospitals() -> Iterator[Hospitals]:
    with Hospitals.made() as made:
        yield made


def faults(hospitals: Hospitals, case: Case) -> list[str]:
    return [f"{case}: {fault}" for fault in hospitals.play(case).faults(case)]


@pytest.mark.parametrize("kind", [kind for kind in TaskKind if kind is not TaskKind.EVALUATE])
def test_no_lie_changes_the_model_or_ends_the_run(kind: TaskKind, hospitals: Hospitals) -> None:
    cases = [
        Case(step, lie, rounds=LONGEST_SEARCH if is_sought(step, lie) else 2) for step, lie in lies() if step is kind
    ]
    assert len(cases) > 5
    assert [fault for case in cases for fault in faults(hospitals, case)] == []


TOLD_BY_ITS_ANSWER = [
    (TaskKind.REVEAL_SHARES, "leaves out a silo"),
    (TaskKind.REVEAL_SHARES, "reveals no share"),
    (TaskKind.SHARE_SECRETS, "deals no polynomial"),
    (TaskKind.SHOW_KEYS, "says that it weighs 10^9"),
]


@pytest.mark.parametrize(("kind", "lie"), TOLD_BY_ITS_ANSWER)
def test_a_server_that_starts_again_tells_the_member_again(kind: TaskKind, lie: str, hospitals: Hospitals) -> None:
    assert faults(hospitals, Case(kind, lie, silos=4, rounds=4, restart_after=2)) == []


@pytest.mark.parametrize(("kind", "lie"), [*TOLD_BY_ITS_ANSWER, (TaskKind.TRAIN, "sends no masks")])
def test_an_honest_silo_may_be_lost_beside_the_member_that_lies(kind: TaskKind, lie: str, hospitals: Hospitals) -> None:
    rounds = LONGEST_SEARCH if is_sought(kind, lie) else 2
    assert faults(hospitals, Case(kind, lie, silos=7, lost="f", rounds=rounds)) == []


def test_silos_that_are_lost_after_the_agreement_are_left_out_of_the_sum(hospitals: Hospitals) -> None:
    case = Case(TaskKind.TRAIN, LOST, silos=7, lost="g")
    outcome = hospitals.play(case)
    assert outcome.faults(case) == []
    assert outcome.counted == [list("acdef")] * 2


def test_the_sum_of_two_is_revealed_only_where_the_document_says_so(hospitals: Hospitals) -> None:
    lost = Case(TaskKind.TRAIN, LOST, silos=3)
    ended = hospitals.play(lost).ended
    assert ended is not None
    assert ended.failure is QUORUM_LOST
    outcome = hospitals.play(replace(lost, quorum=2, survivors=2))
    assert outcome.faults(lost) == []
    assert outcome.counted == [["a", "c"]] * 2


def test_one_wrong_sum_names_nobody(hospitals: Hospitals) -> None:
    """The member keeps to the protocol from the second round on."""
    case = Case(TaskKind.TRAIN, "sends random words", once=True, rounds=LONGEST_SEARCH)
    outcome = hospitals.play(case)
    assert outcome.faults(case) == []
    assert not outcome.named
    assert outcome.counted[0] == []
    assert outcome.counted[-1] == list("abcde")


def test_two_wrong_sums_end_the_run_where_nobody_can_be_left_out(hospitals: Hospitals) -> None:
    outcome = hospitals.play(Case(TaskKind.TRAIN, "sends no masks", quorum=5))
    assert outcome.ended is not None
    assert outcome.ended.failure is IMPOSSIBLE_SUM
    assert outcome.counted == [[]]
    assert not outcome.wrong


def test_the_run_ends_with_the_reason_where_too_few_are_left(hospitals: Hospitals) -> None:
    case = Case(TaskKind.REVEAL_SHARES, "leaves out a silo", silos=3)
    outcome = hospitals.play(case)
    assert outcome.counted == [list("abc")]
    assert outcome.ended is not None
    assert outcome.ended.failure is QUORUM_LOST
    assert "b is left out: b does not answer for exactly the silos" in outcome.ended.message
    assert hospitals.play(replace(case, silos=4)).ended is None


def test_who_joins_again_with_more_images_counts_as_before(hospitals: Hospitals) -> None:
    """Twice what it had at first, as an update may count, in its weight in keys and tallies, too."""
    engine, survivors = hospitals.engine(Case(TaskKind.TRAIN, LOST)), list[int]()
    for samples in (100, 150, 10**8):
        engine.link.join("g", Profile("All", samples, "test"))
        while engine._next(engine.clock.now()) != Joined("g", Profile("All", samples, "test")):
            pass
        survivors.append(engine.connected["g"].samples)
    assert survivors == [100, 150, 200]
