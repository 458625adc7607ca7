"""What a member may say that no script thought of: well-formed messages in drawn orders, with drawn values."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))

from attack_scripts import NotHeldError, Place, held, script
from drawn_plays import drawn_plays
from fuzz_member import BrokenPlayError, FuzzedFederation

SEED, PLAYS = 1, 30


@script(quick=False, place=Place.SEPARATE)
def messages_at_random(folder: Path) -> str:
    """Members play a fixed part of ``make fuzz ARGS="--only member"``."""
    federation = FuzzedFederation(folder)
    try:
        federation.play(drawn_plays(SEED, PLAYS))
    except BrokenPlayError as error:
        raise NotHeldError(str(error)) from error
    refused = sum(count for (_, answer), count in federation.answers.items() if answer.startswith("ANC-"))
    accepted = sum(count for (_, answer), count in federation.answers.items() if answer == "OK")
    held(
        federation.played == PLAYS and refused > 0 < accepted,
        "some messages are accepted, and some refused",
        federation.answers,
    )
    return f"{federation.played} plays, {accepted} messages accepted, {refused} refused by codes; the last round has the same model"
