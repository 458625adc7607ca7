"""What a silo does for secure aggregation: it answers the steps and masks its update before anything of it leaves."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives import serialization

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.piece import expect
from anchorage.api.piece_faults import returned_by
from anchorage.api.run import RunDescription
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Task, TaskKind
from anchorage.transport.pki import Credentials
from anchorage.transport.secure_aggregation.fixed_point import RangeError, encode
from anchorage.transport.secure_aggregation.masks import Words
from anchorage.transport.secure_aggregation.member import Member, ProtocolError
from anchorage.transport.secure_aggregation.wire import (
    Agreement,
    Confirmed,
    KeysMessage,
    Lost,
    Revealed,
    Roster,
    Scale,
    Shares,
    Survivors,
    content_of,
    from_hex,
    read,
    write,
)
from anchorage.transport.tensors.chunks import LateManifest
from anchorage.transport.tensors.layout import Layout


class FixedPointSilo(ABC):
    """Writes updates as fixed-point numbers.

    Parameters
    ----------
    run : RunDescription
        The run, with secure aggregation.
    """

    def __init__(self, run: RunDescription) -> None:
        self._run = run
        self._counted: Mapping[str, int] | None = None
        self._layouts = cache(Layout.from_json)

    @abstractmethod
    def answer(self, task: Task) -> Evaluation:
        """Answer a step.

        Raises
        ------
        AnchorageError
            SECURE_AGGREGATION_REFUSED: it would undo the protection.
        """

    def protect(self, task: Task, announcement: Announcement, update: Bytes, model: Bytes) -> Announcement:
        """Replace an update, in place, by what may leave; return its announcement.

        Raises
        ------
        AnchorageError
            It has no place in a sum, or the others' agreement is missing; nothing may leave.
        """
        if announcement.update is None:
            return announcement
        stage, secure = self._run.stage(task.round), self._run.secure_aggregation
        assert secure is not None, "the run has secure aggregation"
        up, down = self._layouts(stage.up), self._layouts(stage.down)
        weigher = expect(stage.method.weighting, WeightingEngineHooks).weigher(stage.model.task)
        counted_announcement = announcement if self._counted is None else replace(announcement, samples=self._counted)
        with returned_by(stage.method.weighting, "weigh"):
            weight = weigher.weigh({"own": counted_announcement}, {})["own"]
        try:
            if announcement.behind.tensors or announcement.auxiliary_data:
                raise RangeError("auxiliary data would leave beside it")
            if len(update) != up.nbytes:
                raise RangeError(f"it has {len(update)} bytes, the layout {up.nbytes}")
            share = weight / self._scale(task, weight)
            self._mask(task, encode(up, update, model[: down.nbytes], down, share, secure.fractional_bits))
        except (RangeError, ProtocolError) as error:
            update[:] = 0
            raise _refusal(f"the update of {task.id} stays here: {error}") from error
        return replace(announcement, update=LateManifest(up.digest, update))

    @abstractmethod
    def _scale(self, task: Task, weight: float) -> float: ...

    @abstractmethod
    def _mask(self, task: Task, words: Words) -> None: ...


class UnmaskedSilo(FixedPointSilo):
    """A silo of a simulation, where there is nobody to hide from: the same sums without the masks."""

    def answer(self, task: Task) -> Evaluation:
        """Refuse: a simulation has no steps."""
        raise _refusal(f"{task.kind} in a simulation")

    def _scale(self, task: Task, weight: float) -> float:
        return read(Scale, content_of(task.auxiliary_data)).scale

    def _mask(self, task: Task, words: Words) -> None:
        pass


class MaskingSilo(FixedPointSilo):
    """A hospital's silo.

    Parameters
    ----------
    run : RunDescription
        The run, with secure aggregation.
    silo : str
        Its name.
    images : int
        How many images it has.
    credentials : Credentials
        Its key and certificate, and that of the authority.
    now : callable
        Seconds since the epoch.
    private : bool
        Whether announcements tell the number of images in the place of counts, as under a privacy budget.
    """

    def __init__(
        self,
        run: RunDescription,
        silo: str,
        images: int,
        credentials: Credentials,
        now: Callable[[], float] = time.time,
        *,
        private: bool = False,
    ) -> None:
        super().__init__(run)
        self._silo, self._images, self._credentials, self._now = silo, images, credentials, now
        self._counted = {"train": images} if private else None
        self._member: Member | None = None
        self._round = 0

    def answer(self, task: Task) -> Evaluation:
        """Answer a step of the round that is at hand; a new round's keys end it."""
        content = content_of(task.auxiliary_data)
        try:
            match task.kind:
                case TaskKind.SHOW_KEYS:
                    answer = write(self._show_keys(task))
                case TaskKind.SHARE_SECRETS:
                    roster = {name: keys.keys() for name, keys in read(Roster, content).keys.items()}
                    answer = write(Shares.of(self._member_of(task).share(roster, self._now())))
                case TaskKind.CONFIRM_SURVIVORS:
                    signature = self._member_of(task).confirm(read(Survivors, content).survivors)
                    answer = write(Confirmed(signature=signature.hex()))
                case _:
                    lost = read(Lost, content)
                    opened_shares, unreadable = self._member_of(task).reveal(
                        lost.survivors, from_hex(lost.sealed), from_hex(lost.commitments), from_hex(lost.signatures)
                    )
                    shares = {name: share.hex() for name, share in opened_shares.items()}
                    answer = write(Revealed(shares=shares, unreadable=unreadable))
        except ProtocolError as error:
            raise _refusal(f"{task.id}: {error}") from error
        return Evaluation(task.id, answer=answer)

    def _show_keys(self, task: Task) -> KeysMessage:
        stage, files, secure = self._run.stage(task.round), self._credentials, self._run.secure_aggregation
        assert secure is not None, "the run has secure aggregation"
        weigher = expect(stage.method.weighting, WeightingEngineHooks).weigher(stage.model.task)
        if (most := weigher.most(self._images)) is None:
            raise ProtocolError("weights depend on more than the silo's own counts")
        key, certificate, authorities = files.read()
        shown, name = certificate.public_bytes(serialization.Encoding.PEM), self._run.federation
        fewest = secure.minimum_survivors
        self._member = Member(name, self._silo, task.id, int(most), key, shown, authorities, fewest)
        self._round = task.round
        return KeysMessage.of(self._member.keys)

    def _member_of(self, task: Task) -> Member:
        if self._member is None or self._round != task.round:
            raise ProtocolError(f"this silo has shown no keys for round {task.round}")
        return self._member

    def _scale(self, task: Task, weight: float) -> float:
        return self._member_of(task).scale(weight)

    def _mask(self, task: Task, words: Words) -> None:
        agreement = read(Agreement, content_of(task.auxiliary_data))
        self._member_of(task).mask(words, from_hex(agreement.signatures))


def _refusal(detail: str) -> AnchorageError:
    return AnchorageError(silo.SECURE_AGGREGATION_REFUSED, detail)
