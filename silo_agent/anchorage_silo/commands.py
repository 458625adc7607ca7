"""Commands for the people at a hospital: review, approve, policy check, rotate-key, audit verify, images, forget."""

import argparse
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.regular_files import read_regular
from anchorage.transport.grpc.single_calls import describe, held_head
from anchorage.transport.pki import Credentials, key_fingerprint
from anchorage_silo.agent import lock_state_folder, renewal_of
from anchorage_silo.approval import Approvals
from anchorage_silo.audit import AUDIT_FILE, ROLLBACK, AuditLog, verify
from anchorage_silo.audit_witness import missing_lines
from anchorage_silo.config import SiloConfig
from anchorage_silo.enrolment import credentials_of
from anchorage_silo.files import forget_pictures, pictures_folder
from anchorage_silo.policy import read_policy
from anchorage_silo.policy_check import PolicyCheck
from anchorage_silo.renewal import ask_for_new_key
from anchorage_silo.review import Review
from anchorage_silo.server_retry import ServerRetry
from anchorage_silo.state import AgentState


def carry_out(chosen: argparse.Namespace, config: SiloConfig) -> None:
    """Carry out a command and print what came out.

    Raises
    ------
    AnchorageError
        The silo is not enrolled, the server refuses it or does not answer, what is to be approved is out of date, the audit log was changed, a
        policy that is checked would have refused something, no image has the fingerprint, or an agent runs whose images are to be forgotten.
    """
    if chosen.command == "audit":
        _verify_audit(config)
        return
    if chosen.command == "forget":
        with lock_state_folder(config.state):
            nbytes = forget_pictures(config.state)
        sys.stdout.write(f"removed {nbytes / 1e6:.1f} MB of decoded images from {pictures_folder(config.state)}\n")
        return
    if chosen.command == "images":
        _name_images(chosen, config)
        return
    if chosen.command == "policy":
        _check_policy(chosen, config)
        return
    if chosen.command == "rotate-key":
        sys.stdout.write(f"{_rotate_key(config)}\n")
        return
    review = current_review(config)
    if chosen.command == "review":
        sys.stdout.write(
            review.model_dump_json(by_alias=True, indent=2) if chosen.output == "json" else "\n".join(review.words())
        )
        sys.stdout.write("\n")
        return
    if chosen.digest != review.digest:
        detail = f"the digest is {review.digest} now; read what it stands for with anchorage-silo review"
        raise AnchorageError(silo.APPROVAL_OUTDATED, detail)
    Approvals(config.state).give(review)
    sys.stdout.write(f"approved: {review.federation} at {review.silo}; an agent that waits goes on within seconds\n")


def _rotate_key(config: SiloConfig) -> str:
    """Have the running agent change its key, or change it here where none runs; return what happens."""
    credentials = enrolled_credentials(config)
    ask_for_new_key(credentials)
    state = AgentState(credentials.certificate)
    try:
        with lock_state_folder(config.state), closing(AuditLog(config.state / AUDIT_FILE)) as audit:
            change = renewal_of(config, credentials, audit, state).change_key
            ServerRetry(config.patience_seconds, state).until_answered("new key", change)
    except AnchorageError as error:
        if error.failure is not silo.AGENT_RUNNING:
            raise
        return "the new key is made; the running agent takes it within a minute, and its log says so"
    shown = key_fingerprint(read_regular(credentials.certificate))
    return f"the key was changed, and the former one is refused from now on; SHA-256 of the key: {shown}"


def _check_policy(chosen: argparse.Namespace, config: SiloConfig) -> None:
    """Say what a policy would have done with the requests in the audit log."""
    check = PolicyCheck.of(read_policy(chosen.file), config.state / AUDIT_FILE)
    text = check.model_dump_json(by_alias=True, indent=2) if chosen.output == "json" else "\n".join(check.words())
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    check.enforce()


def _name_images(chosen: argparse.Namespace, config: SiloConfig) -> None:
    """Say which images fingerprints in messages and logs stand for."""
    from anchorage_silo.known_images import KnownImages  # an agent that runs loads no images itself

    known = KnownImages.read(config.state)
    if chosen.fingerprint is not None:
        known = known.of(chosen.fingerprint)
    text = known.to_json() if chosen.output == "json" else "\n".join(known.words())
    sys.stdout.write(f"{text}\n")


def _verify_audit(config: SiloConfig) -> None:
    """Say what is in the audit log, and compare it with the head that the server keeps, which is asked for first: the log may grow meanwhile."""
    log, held, compared = config.state / AUDIT_FILE, None, "the server keeps no head of it"
    try:
        held = held_head(config.server, credentials_of(config), config.proxy)
    except AnchorageError as error:
        compared = f"not compared with the head that the server keeps: {error}"
    description, earlier = describe_log(log)
    sys.stdout.write(f"{description}\n")
    detail = missing_lines(log, held) or earlier
    if detail:
        raise AnchorageError(silo.AUDIT_ROLLED_BACK, detail)
    if held is not None:
        compared = f"the server keeps the head of {held.lines} lines, which is of this log"
    sys.stdout.write(f"{compared}\n")


def describe_log(log: Path) -> tuple[str, str]:
    """Check an audit log; return in words what is in it, and what the agent wrote in it of lines that were missing.

    Raises
    ------
    AnchorageError
        It is not as it was written, or cannot be read.
    """
    kinds, times, reading, earlier = Counter[str](), list[float](), verify(log), ""
    for entry in reading:
        kinds[entry["kind"]] += 1
        times = [*times[:1], entry["time"]]
        if entry["kind"] == ROLLBACK:
            earlier = f"line {reading.lines} of {log} says that lines were missing before it, up to one with the hash {entry['digest']}"
    if not kinds:
        return f"{log} has no lines: this agent has sent nothing, or log, head and key were all removed", ""
    first, last = (datetime.fromtimestamp(times[end], UTC).isoformat(timespec="seconds") for end in (0, -1))
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    description = f"{log} is whole: {kinds.total()} lines from {first} to {last}: {what}"
    if reading.missing:
        description += f"\nsegments before number {reading.first} are not here: {reading.missing} lines that nothing was checked of"
    return description, earlier


def current_review(config: SiloConfig) -> Review:
    """Ask the server for the run's description, and work out what it would do here."""
    credentials = enrolled_credentials(config)
    return Review.of(describe(config.server, credentials, config.proxy), config, read_policy(config.policy))


def enrolled_credentials(config: SiloConfig) -> Credentials:
    """Return the credentials of a silo that has enrolled.

    Raises
    ------
    AnchorageError
        It has not.
    """
    credentials = credentials_of(config)
    if not credentials.certificate.exists():
        detail = (
            f"silo {config.silo} has no certificate in {config.state}; start the agent, which enrols, then ask again"
        )
        raise AnchorageError(silo.NOT_ENROLLED, detail)
    return credentials
