"""The agent's course: enrol, fetch the description of the run, read the images, join, carry out tasks."""

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from anchorage import __version__
from anchorage.api.errors import AnchorageError, silo, transfer
from anchorage.api.method import ResolvedMethod
from anchorage.api.run import RunDescription
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.secure_silo import MaskingSilo
from anchorage.engine.silo import SiloWorker
from anchorage.transport.grpc import GrpcServerLink
from anchorage.transport.grpc.single_calls import ask_authorities, describe, held_head, renew
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import Profile
from anchorage.transport.otlp import open_spans
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials, load_key, silo_uri
from anchorage_silo.approval import Approvals
from anchorage_silo.audit import AUDIT_FILE, AuditLog
from anchorage_silo.audit_witness import AuditWitness
from anchorage_silo.authorities import TrustedAuthorities
from anchorage_silo.budget import BudgetGuard
from anchorage_silo.config import SiloConfig
from anchorage_silo.confinement import AS_ROOT, Grants, confinable, gaps, runs_as_root, words
from anchorage_silo.enrolment import credentials_of, ensure_enrolled, explain, forget_identity, has_new_token
from anchorage_silo.files import state_unusable, trainer_folder
from anchorage_silo.frames import Setup
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy, read_policy
from anchorage_silo.probes import serve_probes
from anchorage_silo.renewal import CertificateRenewal
from anchorage_silo.review import Review, read_description
from anchorage_silo.server_retry import ATTEMPT_SECONDS, LONGEST_PAUSE_SECONDS, ServerRetry
from anchorage_silo.state import AgentState
from anchorage_silo.trainer_process import TrainerProcess
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, judge

if TYPE_CHECKING:
    from anchorage.transport.spans import RoundSpans

RUN_CHECK = "check for a changed run"
RUN_CHECK_SECONDS = 60.0
"""Interval at which an agent that stays checks whether a finished run was extended."""

_log = logging.getLogger(__name__)


def run_agent(config: SiloConfig) -> None:
    """Take part in the federation until its run is over; with ``stay`` in the configuration, wait for further runs.

    Raises
    ------
    AnchorageError
        The silo cannot take part, or can no longer take part.
    """
    policy = read_policy(config.policy)
    state = AgentState(credentials_of(config).certificate)
    retry = ServerRetry(config.patience_seconds, state)
    with (
        lock_state_folder(config.state),
        closing(AuditLog(config.state / AUDIT_FILE)) as audit,
        serve_probes(config.probes_listen, state),
    ):
        credentials = _enrol_and_be_admitted(config, audit, retry, state.contact.clock)
        with closing(renewal_of(config, credentials, audit, state)) as renewal:
            renewal.start()
            while True:
                text, review = _fetch_approved(config, policy, credentials, retry)
                state.finished = _run_once(config, policy, text, review, credentials, audit, state)
                if not config.stay:
                    return
                _wait_for_changed_run(config, text, credentials, state)
                state.set_apart()


def _enrol_and_be_admitted(config: SiloConfig, audit: AuditLog, retry: ServerRetry, clock: PeerClock) -> Credentials:
    """Enrol and wait for admission; return the credentials.

    A silo whose key is refused and that has a new token enrols again with a new key.

    Raises
    ------
    AnchorageError
        The silo cannot enrol, the server refuses it, or does not answer.
    """
    while True:
        credentials = ensure_enrolled(config, audit, retry, clock)

        def is_admitted(credentials: Credentials = credentials) -> bool:
            try:
                return bool(describe(config.server, credentials, config.proxy, clock))
            except AnchorageError as error:
                if error.failure is transfer.SILO_NOT_ADMITTED and has_new_token(config):
                    return False
                raise explain(config, clock, error) from error

        if retry.until_answered("request for admission", is_admitted):
            return credentials
        _log.warning("the server refuses this silo's key; enrolling with a new key and the new token")
        forget_identity(config)


def _fetch_approved(
    config: SiloConfig, policy: Policy, credentials: Credentials, retry: ServerRetry
) -> tuple[str, Review]:
    """Fetch the run's description, log in words what it would do here, and wait for the hospital's approval where the policy asks for it.

    Raises
    ------
    AnchorageError
        The server refuses the silo, or does not answer, or the description cannot be read.
    """
    logged = ""

    def fetch() -> tuple[str, Review]:
        nonlocal logged
        text = describe(config.server, credentials, config.proxy)
        review = Review.of(text, config, policy)
        if review.digest != logged:
            logged = review.digest
            review.log()
        if review.needs_approval:
            Approvals(config.state).check(review)
        return text, review

    return retry.until_answered("request for the run's description", fetch)


def _wait_for_changed_run(config: SiloConfig, text: str, credentials: Credentials, state: AgentState) -> None:
    """Wait until the run's description changes, for example to more rounds."""
    while True:
        state.liveness.expect(RUN_CHECK, RUN_CHECK_SECONDS + ATTEMPT_SECONDS)
        time.sleep(RUN_CHECK_SECONDS)
        try:
            latest_text = describe(config.server, credentials, config.proxy)
        except AnchorageError as error:  # after a run the server may be gone
            _log.debug("the run's description is not available: %s", error)
        else:
            if latest_text != text:
                state.liveness.rest(RUN_CHECK)
                return


def renewal_of(config: SiloConfig, credentials: Credentials, audit: AuditLog, state: AgentState) -> CertificateRenewal:
    """Return what renews the silo's certificate and changes its key, not started yet."""

    def show_key() -> None:
        state.contact.redial()
        describe(config.server, credentials, config.proxy, state.contact.clock)

    def request_certificate(request: bytes) -> bytes:
        return renew(config.server, credentials, request, config.proxy, state.contact.clock)

    def ask() -> tuple[bytes, bytes]:
        return ask_authorities(config.server, credentials, config.proxy, state.contact.clock)

    uri = silo_uri(config.federation, config.silo)
    return CertificateRenewal(
        credentials,
        uri,
        request_certificate,
        audit,
        state.liveness,
        show_key=show_key,
        clock=state.contact.clock,
        learn=TrustedAuthorities(credentials, config.federation, uri, ask).learn,
    )


def _run_once(
    config: SiloConfig,
    policy: Policy,
    text: str,
    review: Review,
    credentials: Credentials,
    audit: AuditLog,
    state: AgentState,
) -> str:
    """Read the images, join, carry out tasks until the run is over; return why it is over.

    Raises
    ------
    AnchorageError
        The silo cannot take part, or can no longer take part.
    """
    run = read_description(text)
    documents = config.model_dump_json(by_alias=True), policy.model_dump_json(by_alias=True, exclude_unset=True)
    setup = Setup(*documents, text, policy.protection(run.method))
    grants = grants_of(config, policy)
    _warn_of_gaps(config)
    with closing(TrainerProcess(setup, release=config.release, grants=grants)) as trainer:
        state.waiting = "ReadingImages: the trainer process reads the images"
        samples, fingerprint = trainer.start()
        terms = RunTerms.of(run, config.labels)
        judge(policy, Request(RequestKind.JOIN, terms, fewest=samples), Past(audit)).enforce()
        guard = BudgetGuard.of(policy, run, config.state)
        if guard is not None:  # a digest of the images is of every single one
            fingerprint, state.epsilon = "", guard.ledger.spent_epsilon()
        approvals = Approvals(config.state)
        if approvals.is_given(review):
            audit.record("approval", digest=review.digest)
        facts = {"terms": terms.entry(), "fewest": samples, "packages": review.outside}
        audit.record("join", digest=hashlib.sha256(run.data_key.encode()).hexdigest(), facts=facts)
        witness = _compared_witness(config, credentials, audit)
        link = GrpcServerLink(
            server=config.server,
            credentials=credentials,
            profile=Profile(
                config.labels, samples, __version__, fingerprint, packages=tuple(map(" ".join, review.outside.items()))
            ),
            longest_pause_seconds=LONGEST_PAUSE_SECONDS,
            proxy=config.proxy,
            contact=state.contact,
        )
        state.set_joined(samples)
        gate = OutboundGate(
            link,
            policy,
            audit,
            terms,
            state,
            check_approval=partial(_check_approval, approvals, review),
            approved=partial(approvals.is_given, review),
            guard=guard,
            audit_head=witness.head,
            scored_by=run.model.task,
        )
        secure = None
        if run.secure_aggregation is not None:
            secure = MaskingSilo(run, config.silo, samples, credentials, private=guard is not None)
        _log.info("joining federation %s with %d images", config.federation, samples)
        buffers = MappedBuffers(config.state, update_terms(config, policy, run.method, text), config.shared_weights)
        spans = open_spans("anchorage-silo", config.federation, run.data_key, silo=config.silo)
        return carry_out_tasks(gate, trainer, buffers, secure, _feedback(config, policy, run), spans)


def grants_of(config: SiloConfig, policy: Policy) -> Grants | None:
    """Return what the trainer may touch beside the system; None where the kernel cannot confine it."""
    if not confinable():
        return None
    ledger = policy.privacy_budget.ledger if policy.privacy_budget is not None else None
    hidden = (config.state, config.token, config.policy, ledger)
    claim = config.data.claim_name if config.data is not None else None
    return Grants(
        trainer_folder=str(trainer_folder(config.state)),
        images=str(config.data_root / claim) if claim else "",
        hidden=tuple(str(path) for path in hidden if path is not None),
        network=config.devices > 1,
    )


def _warn_of_gaps(config: SiloConfig) -> None:
    """Warn of what the trainer process is not kept from here, though it would be elsewhere."""
    if gaps():
        _log.warning("the trainer process is confined by %s", words(network=config.devices > 1))
    if runs_as_root():
        _log.warning(AS_ROOT)


def _compared_witness(config: SiloConfig, credentials: Credentials, audit: AuditLog) -> AuditWitness:
    """Compare the audit log with the head that the server keeps; a server that does not tell keeps nobody from training.

    Raises
    ------
    AnchorageError
        The key cannot be read, or the log cannot be read or written.
    """
    witness = AuditWitness(audit, partial(load_key, credentials.key), silo_uri(config.federation, config.silo))
    try:
        held = held_head(config.server, credentials, config.proxy)
    except AnchorageError as error:
        _log.warning("the audit log was not compared with the head that the server keeps: %s", error)
    else:
        witness.compare(held)
    return witness


def carry_out_tasks(
    gate: OutboundGate,
    trainer: TrainerProcess,
    buffers: MappedBuffers,
    secure: MaskingSilo | None,
    feedback: ErrorFeedback,
    spans: "RoundSpans | None" = None,
) -> str:
    """Carry out tasks until the run is over; close the link and the trainer; return why the run is over.

    Raises
    ------
    AnchorageError
        The connection cannot be restored, or a failure could not be reported.
    """
    link: ServerLink = gate
    learner: SiloLearner = trainer
    if spans is not None:
        from anchorage_silo.spans import with_spans

        link, learner = with_spans(gate, trainer, spans)
    worker = SiloWorker(link, learner, buffers, threads=True, admit=gate.admit, secure=secure, feedback=feedback)
    try:
        why = worker.run() or "the connection was closed"
        _log.info("the run is over: %s", why)
        return why
    finally:
        worker.stop()
        trainer.close()
        link.close()
        worker.join()
        if spans is not None:
            spans.close()


def update_terms(config: SiloConfig, policy: Policy, method: ResolvedMethod, run: str) -> bytes:
    """Return on what the bytes of an update depend: `run`, what the configuration says of training, and what the policy has done to the update."""
    trained = config.model_dump(mode="json", include=config.deciding())
    budget = policy.model_dump(mode="json", include={"privacy_budget"})
    return json.dumps(
        {"config": trained, **budget, "protection": asdict(policy.protection(method)), "run": run}
    ).encode()


def _feedback(config: SiloConfig, policy: Policy, run: RunDescription) -> ErrorFeedback:
    """Return what keeps the losses of this run's encoding, also where the run gets more rounds; those made under other terms are removed.

    What was lost before a policy asked for noise must not leave after it.

    Raises
    ------
    AnchorageError
        The folder is not writable.
    """
    terms = update_terms(config, policy, run.method, run.model_dump_json(exclude={"rounds"}))
    state = config.state
    feedback_folder = state / f"feedback-{hashlib.sha256(terms).hexdigest()[:16]}"
    try:
        for other in set(state.glob("feedback-*")) - {feedback_folder}:
            rmtree(other)
    except OSError as error:
        raise state_unusable(state, error) from error
    return ErrorFeedback(feedback_folder)


def _check_approval(approvals: Approvals, review: Review) -> None:
    """Check the approval where one is needed; it may have been withdrawn."""
    if review.needs_approval:
        approvals.check(review)


@contextmanager
def lock_state_folder(folder: Path) -> Iterator[None]:
    """Create the state folder if it is missing and lock it for this process.

    Raises
    ------
    AnchorageError
        The folder is unusable, or another agent uses it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise state_unusable(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise AnchorageError(silo.AGENT_RUNNING, f"another agent uses {folder}") from error
    finally:
        os.close(handle)
