"""A policy played against the requests in the silo's audit log: what it would have admitted and refused."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError, silo
from anchorage.api.text import printable
from anchorage.engine.accounting import Mechanism
from anchorage_silo.audit import SentMessages, verify
from anchorage_silo.chained_log import Entry
from anchorage_silo.ledger import epsilon_after
from anchorage_silo.policy import Policy, PrivacyBudget
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, Verdict, judge

_STEPS = ("keys", "reveal")
_FAILURE = "failure"


class JudgedRequest(Document):
    """A request in the audit log, and what the policy says of it."""

    line: int = Field(description="Number of its line, from 1, earlier segments' lines included.")
    time: str = Field(description="Time of the line, UTC.")
    kind: str = Field(description="Kind of the line: join, announce, evaluation, keys, reveal or failure.")
    task: str = Field(description="Id of the task; empty for join.")
    verdict: Literal["admitted", "refused", "unknown"] = Field(
        description="What the policy would have done; unknown: the line does not say what was asked for."
    )
    reason: str = Field("", description="Why it would have been refused, with the code of the failure.")
    unjudged: tuple[str, ...] = Field(
        (), description="Fields of the policy whose rule could not be judged, as the log lacks what it is about."
    )


class PolicyCheck(Document):
    """What a policy would have done with the requests in an audit log."""

    log: str = Field(description="The audit log.")
    admitted: int = Field(description="Number of requests that it would have admitted.")
    refused: int = Field(description="Number of requests that it would have refused.")
    unknown: int = Field(description="Number of requests that could not be judged at all.")
    missing_lines: int = Field(description="Lines in segments that are not here any more, which were not judged.")
    requires_approval: bool = Field(
        description="Whether the policy asks for an approval before each run, which no log can give in hindsight."
    )
    requests: tuple[JudgedRequest, ...] = Field(description="The requests, the oldest first.")

    @classmethod
    def of(cls, policy: Policy, log: Path) -> "PolicyCheck":
        """Play a policy against a log, with nothing sent and nothing spent before its first line.

        Raises
        ------
        AnchorageError
            The log is not as it was written, or cannot be read; or dp-accounting, which a privacy budget needs, is not installed.
        """
        reading, replay = verify(log), _Replay(policy, log)
        requests = tuple(filter(None, (replay.judge(entry, reading.lines) for entry in reading)))
        verdicts = [each.verdict for each in requests]
        return cls(
            log=str(log),
            admitted=verdicts.count("admitted"),
            refused=verdicts.count("refused"),
            unknown=verdicts.count("unknown"),
            missing_lines=reading.missing,
            requires_approval=policy.require_approval,
            requests=requests,
        )

    def enforce(self) -> None:
        """Raise a failure where something would have been refused.

        Raises
        ------
        AnchorageError
            Something would have been refused.
        """
        if self.refused:
            detail = f"{self.refused} of {len(self.requests)} requests in {self.log} would have been refused"
            raise AnchorageError(silo.POLICY_WOULD_REFUSE, detail)

    def words(self) -> Iterator[str]:
        """Yield it line by line, safe to show."""
        return map(printable, self._lines())

    def _lines(self) -> Iterator[str]:
        for each in self.requests:
            reason = f": {each.reason}" if each.reason else ""
            unjudged = f" (not judged: {', '.join(each.unjudged)})" if each.unjudged else ""
            yield (
                f"line {each.line}, {each.time}, {each.kind} {each.task}".rstrip()
                + f": {each.verdict}{reason}{unjudged}"
            )
        total = f"{len(self.requests)} requests: {self.admitted} admitted, {self.refused} refused"
        yield total + (f", {self.unknown} could not be judged at all" if self.unknown else "")
        if fields := sorted({name for each in self.requests for name in each.unjudged}):
            yield f"Not judged in some lines, which do not hold what these rules are about: {', '.join(fields)}"
        if self.missing_lines:
            yield f"Not judged: {self.missing_lines} lines in segments that are not here; limits over the whole log count them as sent"
        if self.requires_approval:
            yield "Not judged: requireApproval, since people decide on it before a run"


class _Replay:
    """The state of a policy over the entries of a log: what it has let out so far."""

    def __init__(self, policy: Policy, log: Path) -> None:
        self._policy, self._log = policy, log
        self._sent = SentMessages()
        self._budget = None if policy.privacy_budget is None else _SpentBudget(policy.privacy_budget)
        self._terms: RunTerms | None = None
        self._images: int | None = None
        self._empty = True
        self._approving = self._approved = False

    def judge(self, entry: Entry, line: int) -> JudgedRequest | None:
        """Judge an entry, and count it where it is admitted; None where it is no request."""
        first, self._empty = self._empty, False
        if entry["kind"] == "segment":
            if first:
                self._sent.note_missing(entry, self._log)
            return None
        if entry["kind"] == "approval":  # it stands before the run's join
            self._approving = True
            return None
        if entry["kind"] == RequestKind.JOIN:
            self._approved, self._approving = self._approving, False
            self._terms, self._images = RunTerms.read(entry.get("terms")), _number(entry, "fewest")
            self._sent.note(entry)
        elif entry["kind"] not in (RequestKind.UPDATE, RequestKind.SCORES, *_STEPS, _FAILURE):
            return None
        request = self._request(entry)
        if request is None:
            return _judge(entry, line, Verdict(), known=False)
        fits = self._budget.check if self._budget else _admit
        verdict = judge(self._policy, request, Past(self._sent, fits, self._approved))
        if verdict.refusal is None and entry["kind"] == request.kind and request.kind is not RequestKind.JOIN:
            self._sent.note(entry)
            if self._budget is not None and request.kind is RequestKind.UPDATE:
                self._budget.spend(entry["task"], entry["digest"])
        return _judge(entry, line, verdict)

    def _request(self, entry: Entry) -> Request | None:
        """Return what an entry asked for; None where it does not say."""
        kind, failed = entry["kind"], entry["kind"] == _FAILURE
        try:
            asked = RequestKind.STEP if kind in _STEPS else RequestKind(str(entry.get("request")) if failed else kind)
        except ValueError:
            return None
        auxiliary = entry.get("auxiliary")
        names = frozenset(map(str, auxiliary)) if isinstance(auxiliary, list) and not failed else None
        return Request(
            asked,
            self._terms,
            entry["task"],
            round=_number(entry, "round"),
            digest=None if failed else entry["digest"],
            auxiliary=frozenset() if asked is RequestKind.STEP else names,
            fewest=_number(entry, "fewest"),
            update=failed or (bool(entry["digest"]) and entry.get("trained", 0) is not None),
            trained=_number(entry, "trained"),
            images=self._images,
        )


class _SpentBudget:
    """A privacy budget of which nothing was spent before the log."""

    def __init__(self, budget: PrivacyBudget) -> None:
        self._budget = budget
        self._spent: dict[str, Mechanism] = {}
        self._asked: Mechanism | None = None
        self._tasks: set[str] = set()

    def check(self, mechanism: Mechanism, task: str) -> None:
        """Check that a mechanism fits, as the ledger does; an update that was spent before may be sent again.

        Raises
        ------
        AnchorageError
            It does not fit.
        """
        self._asked = mechanism
        if task not in self._tasks:
            epsilon_after(list(self._spent.values()), mechanism, float(self._budget.epsilon), float(self._budget.delta))

    def spend(self, task: str, digest: str) -> None:
        """Count the mechanism that was checked last, once for each update."""
        self._tasks.add(task)
        if self._asked is not None:
            self._spent.setdefault(digest, self._asked)
        self._asked = None


def _admit(mechanism: Mechanism, task: str) -> None:
    """Admit any mechanism: there is no budget."""


def _judge(entry: Entry, line: int, verdict: Verdict, *, known: bool = True) -> JudgedRequest:
    return JudgedRequest(
        line=line,
        time=_time(entry),
        kind=entry["kind"],
        task=entry["task"],
        verdict="unknown" if not known else "admitted" if verdict.refusal is None else "refused",
        reason="" if verdict.refusal is None else str(verdict.refusal),
        unjudged=verdict.unjudged,
    )


def _number(entry: Entry, name: str) -> int | None:
    """Return a number of an entry; None where it has none."""
    value: Any = entry.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(entry: Entry) -> str:
    try:
        return datetime.fromtimestamp(entry["time"], UTC).isoformat(timespec="seconds")
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"
