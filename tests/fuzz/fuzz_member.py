"""Members of a real federation that send well-formed messages at random: the server and its honest silos go on as if there were none."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attack_scripts import NotHeldError, held
from attacked_federation import Federation
from drawn_plays import IMAGES, MEMBERS, Play
from member_player import BadAnswerError, Player

MOST_GROWTH = 96
"""MiB by which the server's memory may grow: the spools of three members, threads and connections, and what the journal keeps of the rounds."""
WARM_UP = 10
"""Plays after which the server's memory is what growth is measured from."""


class BrokenPlayError(Exception):
    """A play after which something does not hold, with its steps."""


class FuzzedFederation:
    """Plays against one federation of processes, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._federation = Federation(folder)
        self.answers: Counter[tuple[str, str]] = Counter()
        """How often each call was answered by each code, OK or status."""
        self.counted = 0
        """Rounds in which an update of a hostile member was good, and counted."""
        self.played = 0
        self.grown = 0
        """MiB by which the server's memory has grown since the first plays."""

    def play(self, plays: list[Play], go_on: Callable[[], bool] = lambda: True) -> None:
        """Play until something does not hold or `go_on` is false.

        Raises
        ------
        BrokenPlayError
            Something does not hold; the play is in the message.
        """
        with self._federation as federation:
            federation.begin()
            for silo in MEMBERS:
                federation.member(silo).join(IMAGES)  # what a member has at first bounds what it may count later
            players = {silo: federation.member(silo) for silo in MEMBERS}
            player = Player(players, federation.federation, federation.layout)
            self.answers = player.answers
            player.rest()
            memory = 0
            for number, play in enumerate(plays):
                if not go_on():
                    break
                try:
                    player.play(play)
                    self._see_unharmed()
                except (BadAnswerError, NotHeldError, AssertionError, TimeoutError) as error:
                    steps = "\n".join(f"    {step}," for step in play)
                    raise BrokenPlayError(f"play {number}: {error}\n[\n{steps}\n]") from error
                self.played += 1
                if number < WARM_UP:
                    memory = self._server_memory()
            self._federation.goes_on()
            self.grown = self._server_memory() - memory if self.played > WARM_UP else 0
            if self.grown > MOST_GROWTH:
                raise BrokenPlayError(f"the server's memory grew by {self.grown} MiB in {self.played} plays")

    def _see_unharmed(self) -> None:
        self.counted += self._federation.take_in()
        self._federation.check_rounds()
        status = json.dumps(self._federation.status(), allow_nan=False)
        held(all(silo in status for silo in MEMBERS), "the status names the members", status)

    def _server_memory(self) -> int:
        """Return the resident memory of the server's process, MiB."""
        assert self._federation.current is not None
        lines = Path(f"/proc/{self._federation.current.pid}/status").read_text().splitlines()
        (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
        return int(kilobytes) >> 10
