"""The only way out of the hospital: every message passes the policy and the audit log first."""

import logging
from collections.abc import Sequence

from anchorage.api.errors import CATALOGUE
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import Announcement, Evaluation, Order, Task, TaskKind
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage_silo.audit import AuditLog
from anchorage_silo.policy import Policy
from anchorage_silo.standing import Standing

DATA_CODES = "ANC-12"
"""Failures of images: their messages name files, which stay in the hospital; the server is told the catalogue's sentence."""

_log = logging.getLogger(__name__)


class Gate:
    """A `ServerLink` that lets out only what the policy allows and writes down what goes.

    Parameters
    ----------
    link : ServerLink
        The way to the server.
    policy : Policy
        The hospital's limits.
    audit : AuditLog
        Where every outbound message is written down.
    methods : sequence of str
        Names of the methods of the run's stages.
    standing : Standing
        Is told what became of tasks.
    beside : sequence of str
        What an update carries beside the network, by the names that a policy knows.
    """

    def __init__(
        self,
        link: ServerLink,
        policy: Policy,
        audit: AuditLog,
        methods: Sequence[str],
        standing: Standing,
        beside: Sequence[str] = (),
    ) -> None:
        self._link = link
        self._policy = policy
        self._audit = audit
        self._methods = methods
        self._standing = standing
        self._beside = beside

    def admit(self, task: Task) -> None:
        """Refuse a task before anything is done for it.

        Raises
        ------
        AnchorageError
            The policy does not allow a method of the run, what travels in its updates, or no further round.
        """
        for method in self._methods:
            self._policy.check_method(method)
        self._policy.check_auxiliary_data(self._beside)
        if task.kind is TaskKind.TRAIN:
            self._policy.check_rounds(task.id, self._audit.announced)

    def welcome(self) -> str:
        """Return the run's description."""
        return self._link.welcome()

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order."""
        return self._link.next_order(timeout)

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive a model."""
        self._link.fetch(manifest, sink)

    def announce(self, announcement: Announcement) -> None:
        """Announce an update.

        Raises
        ------
        AnchorageError
            The policy refuses it, or it cannot be written down.
        """
        self._policy.check_rounds(announcement.task, self._audit.announced)
        self._policy.check_announcement(announcement)
        digest = announcement.update.digest if announcement.update else ""
        self._audit.record("announce", announcement.task, side=announcement.side, digest=digest)
        self._link.announce(announcement)
        self._standing.trained(announcement.task)

    def push(self, task: str, update: ChunkSource) -> None:
        """Send an update.

        Raises
        ------
        AnchorageError
            It cannot be written down.
        """
        manifest = update.manifest
        self._audit.record("update", task, nbytes=manifest.nbytes, digest=manifest.digest)
        self._link.push(task, update)

    def report(self, evaluation: Evaluation) -> None:
        """Send an evaluation.

        Raises
        ------
        AnchorageError
            The policy refuses it, or it cannot be written down.
        """
        self._policy.check_evaluation(evaluation)
        self._audit.record("evaluation", evaluation.task, nbytes=evaluation.confusion.nbytes, side=("confusion",))
        self._link.report(evaluation)
        self._standing.evaluated()

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done; here with every detail, to the server without names of files."""
        _log.error("%s %s: %s", code, task, message)
        self._audit.record("failure", task, code=code)
        self._standing.failed()
        self._link.fail(task, code, CATALOGUE[code].title if code.startswith(DATA_CODES) else message)

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is."""
        self._audit.record("progress", task)
        return self._link.progress(task, done, total)

    def close(self) -> None:
        """End the connection."""
        self._link.close()
