"""Facts of pieces: Anchorage's own are members of an enumeration, words of other packages stay words."""

from collections.abc import Sequence

import pytest

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, Piece
from anchorage.methods import PRESETS


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_pieces_of_a_method_state_and_need_known_facts(name: str) -> None:
    slots = PRESETS[name].slots
    stated = {*slots.facts(), *(need.fact for piece in slots.pieces() for need in piece.needs())}
    assert all(isinstance(fact, Fact) for fact in stated), stated


def test_a_word_of_another_package_holds_beside_them() -> None:
    class Foreign(Piece):
        def facts(self) -> frozenset[str]:
            return frozenset({"acme.recorded", Fact.PLAIN_WEIGHTS})

        def needs(self) -> Sequence[Need]:
            return (Need("acme.recorded", "found none"), Need("plainWeights", "found others"))

    assert all(need.fact in Foreign().facts() for need in Foreign().needs())
    assert Need("acme.other", "found none").fact not in Foreign().facts()


def test_no_two_facts_have_one_word() -> None:
    assert len({fact.value for fact in Fact}) == len(Fact.__members__)
