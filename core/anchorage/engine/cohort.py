"""Who takes part in a synchronous round, and how far each silo has come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorage.api.silo_state import UNFINISHED, SiloState
from anchorage.engine.interfaces import SiloRecord
from anchorage.learning.randomness import generator
from anchorage.transport.messages import Announcement, Task, UpdateFormat
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource
from anchorage.transport.tensors.differences import Restored
from anchorage.transport.tensors.encoded import Decoded, Encoding
from anchorage.transport.tensors.encoded_model import RoundedModel
from anchorage.transport.tensors.joined import part_of
from anchorage.transport.tensors.large_arrays import LargeArrays


def sample_cohort(silos: list[str], count: int | None, seed: int, round_number: int) -> tuple[str, ...]:
    """Draw `count` silos without replacement, in the order of `silos`; all of them where `count` is None or too large.

    The draw depends on (seed, round) and the list alone (methods reference, section 1, randomness).
    """
    if count is None or count >= len(silos):
        return tuple(silos)
    chosen = generator(seed, "sampling", round_number).choice(len(silos), size=count, replace=False)
    return tuple(silos[i] for i in sorted(chosen))


@dataclass
class OpenRound:
    """A round between dispatch and commit.

    `traffic` is what the link had received and sent before it, `tailored` the digests of models that were made for one silo, `base` the model
    that updates travel as differences from, or as encoded changes of, if they do, `encoding` how in the second case, `behind` what every silo
    is sent behind the model, `rounded` the model that silos train from where it was rounded, `large` what came behind the silos' updates.

    Every silo of the cohort is in exactly one state: ``Training``, ``Announced``, ``Uploading``, ``Arrived``, ``Inactive``, ``Failed``, ``Late``,
    ``Absent``, ``Removed`` or, with weight zero, ``Counted`` without an upload.
    """

    task: Task
    cohort: tuple[str, ...]
    traffic: tuple[int, int]
    states: dict[str, SiloState] = field(default_factory=dict)
    announcements: dict[str, Announcement] = field(default_factory=dict)
    updates: dict[str, ChunkSource] = field(default_factory=dict)
    large: dict[str, LargeArrays] = field(default_factory=dict)
    failures: dict[str, tuple[str, str]] = field(default_factory=dict)
    tailored: set[str] = field(default_factory=set)
    base: ChunkSource | None = None
    encoding: Encoding | None = None
    behind: Sequence[LargeArrays] = ()
    rounded: RoundedModel | None = None

    def __post_init__(self) -> None:
        self.states = dict.fromkeys(self.cohort, SiloState.TRAINING)

    @property
    def update_format(self) -> UpdateFormat:
        """How updates travel, from the model of all silos."""
        if self.base is None:
            return UpdateFormat.PLAIN
        return UpdateFormat.DIFFERENCES if self.encoding is None else UpdateFormat.ENCODED

    def sink(self, update: ChunkSink) -> ChunkSink:
        """Return where an update arrives as it travels."""
        if self.base is None:
            return update
        if self.encoding is None:
            return Restored(update, self.base)
        return (
            Decoded(update, self.base, self.encoding)
            if self.encoding.fits(self.task.model, update.manifest)
            else update
        )

    def arrive(self, silo: str, announcement: Announcement, update: ChunkSource) -> None:
        """Take what a silo sent whole, apart: its update, and large auxiliary data; without an update of its own it is inactive."""
        self.announcements[silo] = announcement
        model_bytes = update.manifest.nbytes - announcement.behind.nbytes
        if announcement.behind.tensors:
            self.large[silo] = LargeArrays(announcement.behind, update, model_bytes)
        if announcement.trained:
            self.updates[silo] = part_of(update, 0, model_bytes)
        self.states[silo] = SiloState.ARRIVED if announcement.trained else SiloState.INACTIVE

    def awaited_silos(self) -> list[str]:
        """Return the silos from which something is still to come."""
        return self._in(*UNFINISHED)

    def working_silos(self) -> list[str]:
        """Return the silos that are still at work."""
        return self._in(SiloState.TRAINING)

    def announced_silos(self) -> list[str]:
        """Return the silos that wait at the barrier."""
        return self._in(SiloState.ANNOUNCED)

    def arrived_silos(self) -> list[str]:
        """Return the silos whose updates are whole, in the cohort's order."""
        return self._in(SiloState.ARRIVED)

    def silos_with_announcement(self) -> list[str]:
        """Return the silos whose announcements count: their updates are whole, or they had nothing to train on yet."""
        return [silo for silo in self._in(SiloState.ARRIVED, SiloState.INACTIVE) if silo in self.announcements]

    def count_answers(self) -> int:
        """Return how many silos count for the quorum."""
        return len(self._in(SiloState.ARRIVED, SiloState.INACTIVE, SiloState.COUNTED))

    def fail(self, silo: str, state: SiloState, code: str, message: str) -> None:
        """Take a silo out of the round."""
        self.states[silo] = state
        self.failures[silo] = (code, message)
        self.updates.pop(silo, None)
        self.large.pop(silo, None)

    def silence(self) -> str:
        """Name every silo that does not count, and why."""
        parts = [f"{silo} still at work" for silo in self.awaited_silos()]
        parts += [f"{silo} {code} {message}" for silo, (code, message) in self.failures.items()]
        return "; ".join(parts)

    def records(self, weights: Mapping[str, float]) -> tuple[SiloRecord, ...]:
        """Write down every silo's part; `weights` are normalised."""
        return tuple(self._record(silo, weights.get(silo, 0.0)) for silo in self.cohort)

    def _record(self, silo: str, weight: float) -> SiloRecord:
        announcement = self.announcements.get(silo)
        code, message = self.failures.get(silo, ("", ""))
        state = SiloState.COUNTED if self.states[silo] == SiloState.ARRIVED else self.states[silo]
        samples = announcement.samples if announcement else {}
        metrics = announcement.metrics if announcement else {}
        return SiloRecord(silo, state, weight, samples, metrics, code, message)

    def _in(self, *states: SiloState) -> list[str]:
        return [silo for silo in self.cohort if self.states[silo] in states]
