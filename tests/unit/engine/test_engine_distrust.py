"""The search for the one silo whose update makes sums wrong."""

import pytest

from anchorage.engine.distrust import Distrust

SILOS = [f"s{number}" for number in range(16)]


def played(distrust: Distrust, silos: list[str], wrong: set[str], fewest: int = 3) -> list[str]:
    """Play a round in which the sum is wrong with any of these silos; return who took part."""
    present = [silo for silo in silos if silo not in distrust.named]
    resting = distrust.resting(present, fewest)
    there = [silo for silo in present if silo not in resting]
    if wrong & set(there):
        distrust.wrong_sum(there)
    else:
        distrust.right_sum(there)
    return there


@pytest.mark.parametrize("liar", [SILOS[0], SILOS[9], SILOS[15]])
def test_the_one_silo_is_found_in_few_rounds(liar: str) -> None:
    distrust, rounds = Distrust(), 0
    while not distrust.named:
        played(distrust, SILOS, {liar})
        rounds += 1
    assert distrust.named.keys() == {liar}
    assert rounds <= 8
    assert played(distrust, SILOS, {liar}) == [silo for silo in SILOS if silo != liar]


def test_so_many_are_kept_that_a_third_may_be_lost() -> None:
    distrust = Distrust()
    distrust.wrong_sum(SILOS[:7])
    assert len(played(distrust, SILOS[:7], {"s6"}, fewest=3)) == 4
    assert len(played(distrust, SILOS[:4], {"s3"}, fewest=3)) == 3
    assert distrust.resting(SILOS[:3], 3) == []


def test_who_is_sought_no_more_is_back() -> None:
    distrust = Distrust()
    played(distrust, SILOS, {"s5"})
    for _ in range(8):
        played(distrust, SILOS, set())
    assert not distrust.named
    assert played(distrust, SILOS, set()) == SILOS


def test_two_at_fault_name_no_third() -> None:
    distrust, wrong = Distrust(), {"s1", "s14"}
    for _ in range(40):
        played(distrust, SILOS, wrong)
    assert distrust.named.keys() <= wrong
