"""Who is left out of secure rounds: silos whose answers were wrong, and, by search, the one whose masked update is none."""

from collections.abc import Collection, Sequence


class Distrust:
    """What a server knows of silos that do not keep to secure aggregation, from its start on.

    A wrong answer names its sender. A wrong sum names nobody: one of the silos in it is at fault. Half of those that may be are left out of the next
    round, and so on; a right sum clears whoever was in it. The last one is named when a sum was wrong with it, after all others were cleared, and
    the next one was right without it. Who lies only where a certain other one takes part has that one named: sums cannot tell the two apart.
    """

    def __init__(self) -> None:
        self.named: dict[str, str] = {}
        """Why a silo is left out, by its name."""
        self._suspects: tuple[str, ...] = ()
        self._alone = False
        """Whether the last wrong sum had one suspect alone in it."""

    def wrong_sum(self, silos: Sequence[str]) -> None:
        """Note that the sum of these silos' updates is wrong."""
        remaining_suspects = tuple(silo for silo in self._suspects if silo in silos)
        self._suspects = remaining_suspects or tuple(
            silos
        )  # none of the suspects was in it: it is not one of them, or more than one
        self._alone = len(self._suspects) == 1

    def right_sum(self, silos: Collection[str]) -> str | None:
        """Note that the sum of these silos' updates is right; return who is named for it."""
        self._suspects = tuple(silo for silo in self._suspects if silo not in silos)
        if not (self._alone and self._suspects):
            self._alone = False
            return None
        (suspect,), self._suspects, self._alone = self._suspects, (), False
        self.named[suspect] = "every sum with its update was wrong, and those without it were not"
        return suspect

    def resting(self, silos: Sequence[str], fewest: int) -> list[str]:
        """Return who of these silos is left out of the next round by the search.

        Of the others a third may be lost without their being fewer than `fewest`, if there are enough to leave one out so; else none may.
        """
        suspects = [silo for silo in silos if silo in self._suspects]
        if len(self._suspects) == 1 and not self._alone:  # is a sum wrong with it?
            return []
        room = max(0, len(silos) - fewest)
        spare = sum(remaining_count - remaining_count // 3 >= fewest for remaining_count in range(fewest, len(silos)))
        return suspects[: min(room, max(1, spare), (len(suspects) + 1) // 2)]
