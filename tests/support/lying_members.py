"""Federations in one process with one member that lies in secure aggregation: what it may do, and what came of it.

Time is fake, certificates are real. Every lie is told in the name of a member whose certificate is good.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine import engine_of
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.engine import Engine
from anchorage.engine.events import Observer, RoundCommitted, RunEvent, SiloChanged
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.secure_silo import MaskingSilo
from anchorage.engine.silo import SiloWorker
from anchorage.engine.store import MemoryStore
from anchorage.engine.strategy import Strategy
from anchorage.methods import resolve, validate_study
from anchorage.methods.composition import describe_run, round_settings
from anchorage.simulation.link import InProcessLink
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Event, Profile, Task, TaskKind
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, silo_uri
from anchorage.transport.pki.credentials import read_certificates
from anchorage.transport.secure_aggregation import member as protocol
from anchorage.transport.secure_aggregation.member import Keys, Member
from anchorage.transport.secure_aggregation.shamir import PRIME, SHARE_BYTES, split
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner

WEIGHTS = {"encoder.weight": np.linspace(-1, 1, 200, dtype=np.float32), "encoder.steps": np.array([3, 4])}
NAMES = "abcdefg"
LOST = "is lost after the keys"
REPEATED = "answers early and again"

Message = dict[str, Any]
Lie = Callable[[Message, "Liar"], Message | bytes | None]
"""Returns what is sent in the place of a message; None: nothing in time."""


def step_of(silo: str) -> float:
    """Return what training changes at a silo."""
    return 0.5 * (NAMES.index(silo) + 1)


@dataclass(frozen=True)
class Case:
    """One federation."""

    kind: TaskKind
    """Where the member lies."""
    lie: str
    silos: int = 5
    liar: str = "b"
    once: bool = False
    """Whether it lies in the first round alone."""
    lost: str = ""
    """Honest silos whose updates never come."""
    rounds: int = 2
    restart_after: int = 0
    """Round after which another server goes on; 0: the first one plays all."""
    seed: int = 0
    quorum: int = 3
    survivors: int = 3
    """Whose sum is revealed at least."""

    def __str__(self) -> str:
        also = ", once" if self.once else ""
        also += f", {self.lost} lost" if self.lost else ""
        also += f", a new server after round {self.restart_after}" if self.restart_after else ""
        return f"{self.kind}: {self.liar} of {self.silos} {self.lie}{also}, seed {self.seed}"


@dataclass
class Outcome:
    """What came of one."""

    ended: AnchorageError | None = None
    wrong: list[int] = field(default_factory=list)
    """Rounds whose model is not that before plus the mean of the changes of who counted."""
    counted: list[list[str]] = field(default_factory=list)
    """Who did, by round."""
    named: set[str] = field(default_factory=set)
    """Who was left out."""
    reported: set[str] = field(default_factory=set)
    """Of whom a failure was reported at all."""

    def faults(self, case: Case) -> list[str]:
        """Return what is not as it should be."""
        last, reason = self.counted[-1] if self.counted else [], unnamed(case)
        honest = set(NAMES[: case.silos]) - {case.liar} - set(case.lost)
        lies = {
            f"the server ended: {self.ended}": self.ended is not None,
            f"the models of rounds {self.wrong} are wrong": bool(self.wrong),
            f"{sorted(self.named)} were left out": not self.named <= {case.liar},
            "the member was not left out": reason is None and not case.once and not self.named,
            "the member's failure was not reported": not reason and case.liar not in self.reported,
            f"of the honest silos only {last} counted in the last round": not case.once and not honest <= set(last),
        }
        return [fault for fault, holds in lies.items() if holds]


def _without_first(values: Message) -> Message:
    return dict(list(values.items())[1:])


def _changed(name: str, change: Callable[[Any], Any]) -> Lie:
    return lambda message, liar: {**message, name: change(message[name])}


def _swapped(values: Message) -> Message:
    one, other = list(values)[:2]
    return {**values, one: values[other], other: values[one]}


def _other_bytes(text: str) -> str:
    return "".join(f"{int(letter, 16) ^ 1:x}" for letter in text)


def _each(change: Callable[[str], str]) -> Callable[[Message], Message]:
    return lambda values: {name: change(text) for name, text in values.items()}


def _invented(values: Message) -> Message:
    return {**values, "zz": next(iter(values.values()))}


def _alike(values: Message) -> Message:
    return dict.fromkeys(values, next(iter(values.values())))


def _signed(**fields: Any) -> Lie:
    """Show other keys, signed as they should be."""

    def lie(message: Message, liar: "Liar") -> Message:
        member = liar.member
        keys = replace(member.keys, **fields, signature=b"")
        signature = member._sign(keys.signed_bytes(member.federation, member.task, member.silo)).hex()
        member.keys = replace(keys, signature=bytes.fromhex(signature))
        shown = {name: getattr(keys, name) for name in fields}
        return {
            **message,
            **{n: v.hex() if isinstance(v, bytes) else v for n, v in shown.items()},
            "signature": signature,
        }

    return lie


def _dealt_anew(change: Callable[[list[bytes], random.Random], list[bytes]], of_seed: bool) -> Lie:
    """Deal shares of one secret that are no shares of it, sealed and committed to as they should be."""

    def lie(message: Message, liar: "Liar") -> Message:
        member, sealed, commitments = liar.member, {}, {}
        secrets = (member._mask.private_bytes_raw(), member._seed)
        count = len(member._roster)
        parts = [split(secret, count, protocol.threshold(count)) for secret in secrets]
        parts[of_seed] = change(parts[of_seed], liar.random)
        for silo, pair in zip(member._roster, zip(*parts, strict=True), strict=True):
            commitments[silo] = protocol.commitment(member._digest, member.silo, silo, pair).hex()
            if silo == member.silo:
                member._own_shares[silo] = pair
            else:
                key = protocol.AESGCM(member._sealing(member.silo, silo))
                sealed[silo] = key.encrypt(bytes(12), b"".join(pair), None).hex()
        return {**message, "sealed": sealed, "commitments": commitments}

    return lie


def _no_polynomial(shares: list[bytes], numbers: random.Random) -> list[bytes]:
    return [numbers.randrange(PRIME).to_bytes(SHARE_BYTES, "big") for _ in shares]


def _other_secret(shares: list[bytes], numbers: random.Random) -> list[bytes]:
    return split(numbers.randbytes(32), len(shares), protocol.threshold(len(shares)))


def _complaint(of: Callable[[list[str]], list[str]]) -> Lie:
    def lie(message: Message, liar: "Liar") -> Message:
        silos = of([silo for silo in message["shares"] if silo != liar.name])
        return {"shares": {s: x for s, x in message["shares"].items() if s not in silos}, "unreadable": silos}

    return lie


def _in_words(message: Message, liar: "Liar") -> bytes:
    return b'{"most": NaN, "mask": Infinity, "shares": {"a": NaN}, "signature": NaN}'


COMMON: dict[str, Lie] = {
    "says nothing": lambda message, liar: b"",
    "answers late": lambda message, liar: None,
    "answers NaN": _in_words,
    "answers what is huge": lambda message, liar: json.dumps({**message, "more": "f" * 900_000}).encode(),
    "leaves out a field": lambda message, liar: _without_first(message),
    "invents a field": lambda message, liar: {**message, "weight": 1e300},
}
"""In every step."""
LIES: dict[TaskKind, dict[str, Lie]] = {
    TaskKind.SHOW_KEYS: {
        "swaps its keys": lambda message, liar: {**message, "mask": message["seal"], "seal": message["mask"]},
        "shows keys of low order": _signed(mask=bytes(32)),
        "says that it weighs 10^9": _signed(most=10**9),
        "says that it weighs nothing": _signed(most=0),
        "shows a mask key that it has not": _signed(mask=bytes([9]) + bytes(31)),
        "writes into its certificate": _changed("certificate", lambda text: "\u00e9\n" + text),
        "signs wrongly": _changed("signature", _other_bytes),
    },
    TaskKind.SHARE_SECRETS: {
        "leaves out a share": _changed("sealed", _without_first),
        "leaves out a commitment": _changed("commitments", _without_first),
        "invents a receiver": _changed("sealed", _invented),
        "invents a commitment": _changed("commitments", _invented),
        "repeats one share": _changed("sealed", _alike),
        "swaps two shares": _changed("sealed", _swapped),
        "swaps two commitments": _changed("commitments", _swapped),
        "seals what is no share": _changed("sealed", _each(_other_bytes)),
        "commits to other shares": _changed("commitments", _each(_other_bytes)),
        "commits to another seed": _changed("seed", _other_bytes),
        "signs wrongly": _changed("signature", _other_bytes),
        "deals no polynomial": _dealt_anew(_no_polynomial, of_seed=True),
        "deals another seed": _dealt_anew(_other_secret, of_seed=True),
        "deals another mask key": _dealt_anew(_other_secret, of_seed=False),
        f"deals another mask key and {LOST}": _dealt_anew(_other_secret, of_seed=False),
    },
    TaskKind.TRAIN: dict.fromkeys(
        ("sends no masks", "sends random words", "sends the largest words", "sends NaN", "counts 10^9 images", LOST),
        lambda message, liar: message,
    ),
    TaskKind.CONFIRM_SURVIVORS: {"signs wrongly": _changed("signature", _other_bytes)},
    TaskKind.REVEAL_SHARES: {
        "leaves out a silo": _changed("shares", _without_first),
        "invents a silo": _changed("shares", _invented),
        "repeats one share": _changed("shares", _alike),
        "swaps two shares": _changed("shares", _swapped),
        "reveals no share": _changed("shares", _each(_other_bytes)),
        "reveals a short share": _changed("shares", _each(lambda text: text[:2])),
        "reveals a long share": _changed("shares", _each(lambda text: text + "00")),
        "names a silo twice": lambda message, liar: {**message, "unreadable": [liar.name]},
        "could open none": _complaint(lambda silos: silos),
        "could not open one": _complaint(lambda silos: silos[:1]),
    },
}
"""By step."""
_AFTER_ALL = "what nobody asked for is not heard"
_OTHERS_SUFFICE = "the others' answers suffice, and come first"
UNNAMED = {
    (TaskKind.SHOW_KEYS, "says nothing"): "",
    (TaskKind.SHOW_KEYS, "answers late"): "",
    (TaskKind.SHOW_KEYS, "says that it weighs nothing"): "",
    (TaskKind.SHARE_SECRETS, "says nothing"): "",
    (TaskKind.SHARE_SECRETS, "answers late"): "",
    (TaskKind.SHARE_SECRETS, "deals another mask key"): "nobody needs it while the member takes part",
    (TaskKind.TRAIN, "counts 10^9 images"): "",
    (TaskKind.TRAIN, LOST): "",
    (TaskKind.CONFIRM_SURVIVORS, "says nothing"): "",
    (TaskKind.CONFIRM_SURVIVORS, "answers late"): _OTHERS_SUFFICE,
    (TaskKind.REVEAL_SHARES, "says nothing"): "",
    (TaskKind.REVEAL_SHARES, "answers late"): _OTHERS_SUFFICE,
    (TaskKind.REVEAL_SHARES, "could not open one"): "the dealer may have sealed something else; enough others could",
    **{(kind, REPEATED): _AFTER_ALL for kind in TaskKind if kind.step},
}
"""Lies for which the member is not left out: none of them costs more than its own part in the round. Where the reason is empty, the failure of
its task or its silence is reported under its name; else nothing tells it."""


def unnamed(case: Case) -> str | None:
    """Return why the member of a federation may not be left out, as `UNNAMED` has it; None where it has to be."""
    if case.kind is TaskKind.SHARE_SECRETS and case.lie.startswith("swaps two") and case.silos > 5:
        return "two cannot open theirs, who may lie; enough others can"
    return UNNAMED.get((case.kind, case.lie))


def lies() -> Iterator[tuple[TaskKind, str]]:
    """Yield every lie."""
    for kind, liar in LIES.items():
        for name in liar if kind is TaskKind.TRAIN else {**COMMON, **liar}:
            yield kind, name
    yield from ((kind, REPEATED) for kind in LIES if kind.step)


def is_sought(kind: TaskKind, lie: str) -> bool:
    """Return whether the sum alone is wrong, so that the member is found by leaving out some."""
    return lie == "shows a mask key that it has not" or (kind is TaskKind.TRAIN and (kind, lie) not in UNNAMED)


LONGEST_SEARCH = 8
"""Rounds after which the member is found, of seven silos or fewer."""


class FakeClock:
    """Time that passes where everybody waits."""

    def __init__(self) -> None:
        self.seconds = time.time()

    def now(self) -> float:
        return self.seconds


class _Link(InProcessLink):
    """Moves the clock in the place of waiting."""

    def __init__(self, clock: FakeClock, welcome: str, pump: Callable[[], bool]) -> None:
        super().__init__(clock, welcome)
        self._time, self._silos_work = clock, pump

    def next_event(self, until: float | None) -> Event | None:
        while (event := super().next_event(self._time.now())) is None:
            if not self._silos_work():
                assert until is not None, "the server waits for ever"
                self._time.seconds = max(self._time.seconds, until)
                return None
        return event


class LyingLink:
    """A silo's end of a link, over which its answers go as the member wants."""

    def __init__(self, link: ServerLink, liar: "Liar") -> None:
        self._link, self._liar, self._late = link, liar, list[Evaluation]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def next_order(self, timeout: float | None) -> Any:
        order = self._link.next_order(timeout)
        if order is not None:
            while self._late:
                self._link.report(self._late.pop())
        return order

    def report(self, evaluation: Evaluation) -> None:
        evaluation_answer = self._liar.said(evaluation)
        if evaluation_answer is None:
            self._late.append(evaluation)
            return
        try:
            self._link.report(evaluation_answer)
        except AnchorageError as error:  # as gRPC refuses it
            self._link.fail(evaluation.task, error.code, error.message)
        if self._liar.repeats(evaluation):
            session = evaluation.task.rsplit(".", 1)[0]
            for kind in TaskKind:
                self._link.report(replace(evaluation, task=f"{session}.{kind.lower()}"))

    def announce(self, announcement: Announcement) -> None:
        if self._liar.lies_at(TaskKind.TRAIN) and self._liar.case.lie == "counts 10^9 images":
            announcement = replace(announcement, samples={"train": 10**9})
        try:
            self._link.announce(announcement)
        except AnchorageError as error:
            self._link.fail(announcement.task, error.code, error.message)


class Liar(MaskingSilo):
    """A member that keeps to the protocol but for one lie."""

    def __init__(self, case: Case, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.case, self.name, self.random = case, case.liar, random.Random(case.seed)

    @property
    def member(self) -> Member:
        assert self._member is not None, "it has shown keys"
        return self._member

    def lies_at(self, kind: TaskKind) -> bool:
        """Return whether it lies in this step of the round at hand."""
        return kind is self.case.kind and (self._round == 1 or not self.case.once)

    def repeats(self, evaluation: Evaluation) -> bool:
        """Return whether it sends this answer to other steps, too, and once more."""
        return self.case.lie == REPEATED and self._step_of(evaluation, self.case.kind)

    def said(self, evaluation: Evaluation) -> Evaluation | None:
        """Return what it answers; None: nothing yet."""
        lie = {**COMMON, **LIES[self.case.kind]}.get(self.case.lie)
        if lie is None or not self._step_of(evaluation, self.case.kind):
            return evaluation
        answer = lie(json.loads(evaluation.answer), self)
        if answer is None:
            return None
        return replace(evaluation, answer=answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def protect(self, task: Task, announcement: Announcement, update: Bytes, model: Bytes) -> Announcement:
        """Mask the update, or not."""
        if self.lies_at(self.case.kind) and self.case.lie.endswith(LOST):
            update[:] = 0xFF  # no numbers: they stay here
        if not self.lies_at(TaskKind.TRAIN):
            return super().protect(task, announcement, update, model)
        honest = update.copy()
        announcement = super().protect(task, announcement, update, model)
        masked, words = update.view("<u4").copy(), update.view("<u4")
        match self.case.lie:
            case "sends no masks":
                update[:] = honest
            case "sends random words":
                update[:] = np.frombuffer(self.random.randbytes(len(update)), np.uint8)
            case "sends NaN":
                words[:] = 0x7FC00000
            case "sends the largest words":  # beside its masks, which come off
                words[:] = masked + np.uint32(2**31 - 1)
        return announcement

    def _step_of(self, evaluation: Evaluation, kind: TaskKind) -> bool:
        return evaluation.task.endswith(f".{kind.lower()}") and bool(evaluation.answer) and self.lies_at(kind)


class _LostSilo(MaskingSilo):
    """An honest silo whose update is none, so that it stays there."""

    def protect(self, task: Task, announcement: Announcement, update: Bytes, model: Bytes) -> Announcement:
        update[:] = 0xFF
        return super().protect(task, announcement, update, model)


class Hospitals:
    """Certificates of a federation's members, and its documents; made once for many federations."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority.create(folder / "authority", "derm")
        self.files = {}
        for silo in NAMES:
            files = Credentials(folder / f"{silo}.key", folder / f"{silo}.pem", self.authority.certificate_path)
            request = SigningRequest.make(new_key(files.key), silo_uri("derm", silo))
            files.save_certificate(self.authority.issue_silo(request, silo))
            self.files[silo] = files
        save_file(WEIGHTS, folder / "initial.safetensors")
        self._studies: dict[tuple[int, int, int], Study] = {}

    @classmethod
    @contextmanager
    def made(cls) -> Iterator["Hospitals"]:
        """Make them in a folder of their own."""
        with tempfile.TemporaryDirectory(prefix="anchorage-lies-") as folder:
            yield cls(Path(folder))

    def study(self, case: Case) -> Study:
        """Return the documents of a federation."""
        key = case.silos, case.quorum, case.survivors
        if key not in self._studies:
            spec = {
                "rounds": 1000,
                "task": {"classification": {"classes": ["a", "b", "c"]}},
                "model": {"network": "ResNet18", "imageSize": 32, "initial": "initial.safetensors"},
                "method": {"name": "FedAvg"},
                "protocol": {
                    "minSilos": case.quorum,
                    "roundDeadlineSeconds": 600,
                    "secureAggregation": {"minimumSurvivors": case.survivors},
                },
            }
            documents = [{"kind": "Federation", "metadata": {"name": "derm"}, "spec": spec}]
            for silo in NAMES[: case.silos]:
                silo_spec = {"federation": "derm", "labels": "All"}
                documents.append({"kind": "Silo", "metadata": {"name": silo}, "spec": silo_spec})
            file = self.folder / f"federation-{'-'.join(map(str, key))}.yaml"
            file.write_text(yaml.safe_dump_all(documents))
            self._studies[key] = validate_study(file)
        return self._studies[key]

    def check_keys(self, clock: FakeClock, task: str, silo: str, keys: Keys) -> None:
        """Check keys as the server does."""
        keys.check("derm", task, silo, read_certificates(self.authority.certificate_path), clock.now())

    def play(self, case: Case) -> Outcome:
        """Play a federation to its end."""
        outcome, clock, store, models = Outcome(), FakeClock(), MemoryStore(), list[dict[str, Any]]()
        parts = [case.restart_after, case.rounds] if case.restart_after else [case.rounds]
        try:
            for rounds in parts:
                observer = partial(_observe, outcome, models)
                self.engine(case, rounds=rounds, clock=clock, store=store, observer=observer).run()
        except AnchorageError as error:
            outcome.ended = error
        return outcome

    def engine(
        self,
        case: Case,
        *,
        rounds: int = 1,
        clock: FakeClock | None = None,
        store: MemoryStore | None = None,
        observer: Observer = lambda event: None,
    ) -> Engine:
        """Return a server, whose silos work in its thread."""
        clock = clock or FakeClock()
        study, learner = self.study(case), FileModel(self.folder / "initial.safetensors")
        run, spec = describe_run(study, learner), study.federation.spec
        workers, ends = dict[str, SiloWorker](), dict[str, Any]()

        def pump() -> bool:
            first = sorted(
                ends, key=lambda silo: silo != case.liar
            )  # what comes when enough have answered is not looked at
            orders = [(silo, ends[silo].next_order(0.0)) for silo in first]
            for silo, order in orders:
                if order is not None:
                    workers[silo].handle(order)
            return any(order is not None for _, order in orders)

        link = _Link(clock, run.to_json(), pump)
        for silo in NAMES[: case.silos]:
            ends[silo] = link.connect(silo, Profile("All", 100, "test"))
            secure = self._member(case, run, silo, clock)
            if isinstance(secure, Liar):
                ends[silo] = LyingLink(ends[silo], secure)
            null = NullLearner(learner.down, learner.up, step_of(silo), 100)
            workers[silo] = SiloWorker(ends[silo], null, MemoryBuffers(), secure=secure)
        settings = replace(round_settings(study), rounds=rounds, check_keys=partial(self.check_keys, clock))
        return engine_of("Synchronous", settings)(
            link=link,
            store=store or MemoryStore(),
            clock=clock,
            learner=learner,
            strategy=Strategy.of(resolve(spec.method), spec.task, spec.seed),
            settings=settings,
            observer=observer,
        )

    def _member(self, case: Case, run: RunDescription, silo: str, clock: FakeClock) -> MaskingSilo:
        arguments = (run, silo, 100, self.files[silo], clock.now)
        if silo == case.liar:
            return Liar(case, *arguments)
        return _LostSilo(*arguments) if silo in case.lost else MaskingSilo(*arguments)


def _observe(outcome: Outcome, models: list[dict[str, Any]], event: RunEvent) -> None:
    match event:
        case SiloChanged(silo, code=code, message=message) if code:
            outcome.reported.add(silo)
            if message.startswith("left out until"):
                outcome.named.add(silo)
        case RoundCommitted(record, model):
            models.append({name: array.copy() for name, array in model.arrays().items()})
            if record.round > 0:
                outcome.counted.append([part.name for part in record.silos if part.weight > 0])
                if not _is_right(record, *models[-2:]):
                    outcome.wrong.append(record.round)
        case _:
            pass


def _is_right(record: RoundRecord, before: dict[str, Any], after: dict[str, Any]) -> bool:
    change = sum(part.weight * step_of(part.name) for part in record.silos)
    old, new = before["encoder.weight"], after["encoder.weight"]
    return bool(np.allclose(new, old + change, rtol=0, atol=1e-4)) and bool((after["encoder.steps"] == [3, 4]).all())
