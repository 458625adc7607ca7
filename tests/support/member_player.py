"""Plays what `drawn_plays` draws against a real server, with the keys of its members."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc
from drawn_plays import Play, Step, array_of
from hostile_silo import Answer, HostileSilo, ended, filled

from anchorage.api.errors import CATALOGUE
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.pki import SigningRequest, silo_uri
from anchorage.transport.pki.keys import load_key, make_key
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LISTEN_SECONDS = 10.0
"""How long a member waits for an order that the server has for it."""
HELD_UP_SECONDS = 0.5
"""How long, where another member takes part, too: while that one holds the round up, no order may come."""
STALL_SECONDS = 30.0
OTHER = Layout.of([("encoder.weight", "F32", (400_001,))])
_TASKS = {"none": "", "long": "x" * 129, "strange": "é/../\n", "step": "1.reveal-shares"}
_WITHOUT_A_CODE = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: "message larger than max",
    grpc.StatusCode.UNAVAILABLE: "calls at once",
}
"""Statuses of gRPC itself and of the bound on calls, which an agent understands without a code."""

_CLOSED_HERE = ("the connection was closed", "Channel closed!")


class BadAnswerError(Exception):
    """A call did not end as calls may."""


class _Member:
    """What one member has seen."""

    def __init__(self, silo: HostileSilo) -> None:
        self.silo = silo
        self.tasks: list[pb.Task] = []
        self.sessions: list[str] = []
        self.announced: dict[str, ModelBytes | None] = {}
        self.takes_part = False
        self.expects: tuple[str, ...] = ()
        """Kinds of orders of which one comes: it joined with images or announced, and has heard none since."""

    def hear(self, seconds: float = 0.0) -> None:
        """Take the orders that have come, and wait for one that is expected."""
        self._take(self.silo.orders())
        while self.expects and seconds and (order := self.silo.next_order(seconds)) is not None:
            self._take([order])

    def _take(self, orders: list[pb.Order]) -> None:
        kinds = {order.WhichOneof("order") for order in orders}
        self.tasks += [order.assign for order in orders if order.WhichOneof("order") == "assign"]
        del self.tasks[:-4]
        if kinds.intersection(self.expects):
            self.expects = ()


class Player:
    """Plays steps of members and counts how the server answered.

    Parameters
    ----------
    members : dict of str to HostileSilo
        By name; all of them have a session.
    federation : str
        Name of the federation.
    layout : Layout
        Of updates.
    """

    def __init__(self, members: dict[str, HostileSilo], federation: str, layout: Layout) -> None:
        self._members = {name: _Member(silo) for name, silo in members.items()}
        self._federation, self._layout = federation, layout
        self._filled = cache(lambda value: filled(layout, value))
        self._other = filled(OTHER, 1.0)
        self._stalled: list[tuple[threading.Event, Any]] = []
        self.answers: Counter[tuple[str, str]] = Counter()
        """How often each call was answered by each code, OK or status."""

    def play(self, play: Play) -> None:
        """Play the steps one after another, or two at once; then no member takes part any more.

        Raises
        ------
        BadAnswerError
            A call ended neither well nor with a code of the catalogue, or did not end.
        """
        with ThreadPoolExecutor(1) as pool:
            started: Future[None] | None = None
            for step in play:
                if step.with_next and started is None:
                    started = pool.submit(self._step, step)
                    continue
                self._step(step)
                if started is not None:
                    started = started.result()
            if started is not None:
                started.result()
        self.rest()

    def rest(self) -> None:
        """End what is still on its way, and have no member take part."""
        for name, member in self._members.items():
            self._count(Step(name, "park", {}), self._park(member))
            member.silo.close_earlier()
            member.announced.clear()
        for over, call in self._stalled:
            over.set()
            self._count(Step("", "upload", {"stalls": True}), _result(call))
        self._stalled.clear()
        for name, member in self._members.items():
            ends, member.silo.ends = member.silo.ends, []
            for end in ends:
                self._count(Step(name, "session", {}), end)

    def _step(self, step: Step) -> None:
        member = self._members[step.who]
        member.hear()
        if step.call == "listen":
            alone = not any(other.takes_part for other in self._members.values() if other is not member)
            member.hear(LISTEN_SECONDS if alone else HELD_UP_SECONDS)
            return
        play: Callable[..., Answer | None] = getattr(self, f"_{step.call}")
        fields = dict(step.fields)
        connection, session = member.silo.connection, fields.pop("session", "own")
        if session != "own" and connection is not None:
            connection.session = self._session(member, session)
        try:
            answer = play(member, **fields)
        finally:
            if session != "own" and connection is not None:
                connection.session = member.silo.session
        if answer is not None:
            self._count(step, answer)

    def _count(self, step: Step, answer: Answer) -> None:
        self.answers[step.call, answer.code if answer.code in CATALOGUE else answer.status.name] += 1
        if answer.status is grpc.StatusCode.OK or answer.code in CATALOGUE:
            return
        if answer.status in _WITHOUT_A_CODE and _WITHOUT_A_CODE[answer.status] in answer.details:
            return
        ended_here = any(sign in answer.details for sign in _CLOSED_HERE)
        ended_here = ended_here or step.call in ("upload", "fetch")  # a session ends with its transfers
        if answer.status is grpc.StatusCode.CANCELLED and ended_here:
            return
        raise BadAnswerError(f"{step} was answered by {answer}")

    def _session(self, member: _Member, which: str) -> str:
        others = [other.silo.session for other in self._members.values() if other is not member]
        return {"before": (["", *member.sessions])[-1], "other": others[0], "none": "", "strange": "~" * 300}[which]

    def _task(self, member: _Member, which: str) -> str:
        if which in _TASKS:
            return _TASKS[which]
        last = member.tasks[-1].id if member.tasks else "1.train." + "0" * 16
        others = [task.id for other in self._members.values() if other is not member for task in other.tasks]
        following = f"{member.tasks[-1].round + 1 if member.tasks else 2}.train.{'0' * 16}"
        old = member.tasks[0].id if member.tasks else last
        return {"own": last, "old": old, "other": ([last + "x", *others])[-1], "next": following}[which]

    def _update(self, member: _Member, task: str, what: tuple[Any, ...]) -> ModelBytes | None:
        """Return the update that a field stands for, where it is one that has bytes."""
        match what:
            case ("filled", value):
                return self._filled(value)
            case ("announced",):
                return member.announced.get(task) or self._filled(1.0)
            case _:
                return self._other

    def _manifest(self, member: _Member, task: str, what: tuple[Any, ...]) -> pb.Manifest | None:
        match what:
            case ("none",):
                return None
            case ("sized", nbytes, digests, front):
                return pb.Manifest(layout=self._layout.digest, nbytes=nbytes, digests=bytes(16 * digests), front=front)
            case ("unknown-bytes",):
                good = self._filled(0.0).manifest
                return pb.Manifest(layout=good.layout, nbytes=good.nbytes, digests=bytes(16 * len(good.digests)))
            case _:
                update = self._update(member, task, what)
                assert update is not None
                return convert.manifest_to_proto(update.manifest)

    def _head(self, member: _Member, what: str | None) -> pb.SignedHead | None:
        if what is None:
            return None
        silo = next(name for name, other in self._members.items() if other is member)
        lines = {"signed-far": 2**53, "no-lines": 0}.get(what, 7)
        head = SignedHead.sign(
            load_key(member.silo.credentials.key), silo_uri(self._federation, silo), lines, bytes(32)
        )
        signature = b"x" * 70 if what == "forged" else head.signature
        return pb.SignedHead(lines=lines, digest=bytes(31 if what == "short" else 32), signature=signature)

    def _join(self, member: _Member, samples: int, fields: dict[str, Any]) -> Answer:
        before = member.silo.session
        answer = member.silo.join(samples, **fields)
        if answer.status is grpc.StatusCode.OK:
            member.sessions.append(before)
            del member.sessions[:-2]
            member.takes_part = samples > 0
            member.expects = ("assign",) if samples else ()
        return answer

    def _park(self, member: _Member) -> Answer:
        return self._join(member, 0, {})

    def _leave(self, member: _Member) -> None:
        member.silo.leave()
        member.takes_part, member.expects = False, ()

    def _announce(
        self, member: _Member, task: str, update: tuple[Any, ...], samples: dict[str, int], metrics: dict[str, float],
        auxiliary: dict[str, Any], head: str | None, names: int, behind: str,
    ) -> Answer:  # fmt: skip
        task = self._task(member, task)
        message = pb.Announcement(
            task=task,
            samples={**samples, **{f"count {number}": number for number in range(names)}},
            metrics=metrics,
            auxiliary_data=_arrays(auxiliary),
            update=self._manifest(member, task, update),
            behind={"layout": self._layout.to_json(), "other-layout": OTHER.to_json()}.get(behind, behind),
            audit_head=self._head(member, head),
        )
        member.announced[task] = self._update(member, task, update)
        answer = member.silo.say("Announce", message)
        member.expects = ("permit", "dismiss") if answer.status is grpc.StatusCode.OK else ()
        return answer

    def _upload(
        self, member: _Member, task: str, update: tuple[Any, ...], chunks: tuple[list[int], list[str]], first: str, stalls: bool
    ) -> Answer | None:  # fmt: skip
        task = self._task(member, task)
        content = self._update(member, task, update)
        assert content is not None
        declared, damages = chunks
        messages = [pb.ChunkList(model=content.digest, chunks=declared).SerializeToString()]
        if first in ("absent", "empty"):
            messages = [b""] if first == "empty" else []
        elif first == "chunk":
            messages = [content.chunk(0)]
        for index, damage in zip((*declared, *[0] * len(damages)), damages, strict=False):
            chunk = content.chunk(min(index, len(content.chunks) - 1))
            messages += _damaged(chunk, damage)
        name = task if task.isascii() and task.isprintable() else "?"  # what metadata can hold
        if not stalls:
            return member.silo.push(name, messages)
        over = threading.Event()
        assert member.silo.connection is not None
        try:
            self._stalled.append((over, member.silo.connection.push(name, _stalled(messages, over))))
        except grpc.RpcError as error:
            return ended(error)
        return None

    def _report(
        self, member: _Member, task: str, tally: dict[str, Any], images: int, answer: bytes, head: str | None
    ) -> Answer:  # fmt: skip
        sums = _arrays(tally)
        message = pb.Evaluation(
            task=self._task(member, task), tally=sums, images=images, answer=answer, audit_head=self._head(member, head)
        )
        return member.silo.say("Report", message)

    def _fail(self, member: _Member, task: str, code: str, message: str) -> Answer:
        return member.silo.say("Fail", pb.Failure(task=self._task(member, task), code=code, message=message))

    def _progress(self, member: _Member, task: str, done: int, total: int) -> Answer:
        return member.silo.say("Progress", pb.Progress(task=self._task(member, task), done=done, total=total))

    def _fetch(self, member: _Member, model: str, chunks: list[int]) -> Answer:
        tasks = member.tasks
        if not tasks or model in ("none", "strange"):
            return member.silo.fetch("" if model == "none" else "é" * 64, chunks)
        manifest = convert.manifest_from_proto(tasks[-1 if model == "own" else 0].model)
        return member.silo.fetch(manifest.digest, chunks)

    def _lacking(self, member: _Member, task: str, update: tuple[Any, ...]) -> Answer:
        task = self._task(member, task)
        content = self._update(member, task, update)
        assert content is not None
        return member.silo.say("Lacking", pb.Offer(task=task, update=content.digest))

    def _describe(self, member: _Member) -> Answer:
        return member.silo.say("Describe", pb.DescribeRequest())

    def _trust(self, member: _Member) -> Answer:
        return member.silo.say("Trust", pb.TrustRequest())

    def _renew(self, member: _Member, request: str) -> Answer:
        name = next(name for name, other in self._members.items() if (other is member) == (request == "own"))
        asked = (
            SigningRequest.make(make_key(), silo_uri(self._federation, name)) if request in ("own", "other") else b""
        )
        return member.silo.say("Renew", pb.Renewal(request=b"text" if request == "text" else asked))


def _arrays(described: dict[str, Any]) -> bytes:
    return convert.arrays_to_bytes({name: array_of(*array) for name, array in described.items()})


def _damaged(chunk: bytes, damage: str) -> list[bytes]:
    match damage:
        case "short":
            return [chunk[:-1]]
        case "long":
            return [chunk + b"\0"]
        case "empty":
            return [b""]
        case "huge":
            return [bytes(4 * CHUNK_BYTES + 1)]
        case "other":
            return [bytes(len(chunk))]
        case "twice":
            return [chunk, chunk]
        case _:
            return [chunk]


def _stalled(messages: list[bytes], over: threading.Event) -> Iterator[bytes]:
    yield from messages
    over.wait()


def _result(call: Any) -> Answer:
    try:
        return Answer(grpc.StatusCode.OK, content=call.result(STALL_SECONDS))
    except grpc.FutureTimeoutError:
        raise BadAnswerError("an upload of a session that is over does not end") from None
    except grpc.FutureCancelledError:
        return Answer(grpc.StatusCode.CANCELLED)
    except grpc.RpcError as error:
        return ended(error)
