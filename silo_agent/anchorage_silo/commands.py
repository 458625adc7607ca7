"""Commands for the people at a hospital: review, approve, audit verify."""

import argparse
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.transport.grpc.single_calls import describe
from anchorage_silo.approval import Approvals
from anchorage_silo.audit import AUDIT_FILE, verified
from anchorage_silo.config import SiloConfig
from anchorage_silo.enrolment import credentials_of
from anchorage_silo.policy import read_policy
from anchorage_silo.review import Review


def carry_out(chosen: argparse.Namespace, config: SiloConfig) -> None:
    """Carry out a command and print what came out.

    Raises
    ------
    AnchorageError
        The silo is not enrolled, the server refuses it or does not answer, what is to be approved is out of date, or the audit log was changed.
    """
    if chosen.command == "audit":
        sys.stdout.write(f"{_verify_audit(config.state / AUDIT_FILE)}\n")
        return
    review = current_review(config)
    if chosen.command == "review":
        sys.stdout.write(
            review.model_dump_json(by_alias=True, indent=2) if chosen.output == "json" else "\n".join(review.words())
        )
        sys.stdout.write("\n")
        return
    if chosen.digest != review.digest:
        found = f"the digest is {review.digest} now; read what it stands for with anchorage-silo review"
        raise AnchorageError(silo.APPROVAL_OUTDATED, found)
    Approvals(config.state).give(review)
    sys.stdout.write(f"approved: {review.federation} at {review.silo}; an agent that waits goes on within seconds\n")


def _verify_audit(log: Path) -> str:
    entries = verified(log)
    if not entries:
        return f"{log} has no lines: this agent has sent nothing, or log, head and key were all removed"
    kinds = Counter(entry["kind"] for entry in entries)
    first, last = (datetime.fromtimestamp(entries[end]["time"], UTC).isoformat(timespec="seconds") for end in (0, -1))
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{log} is whole: {len(entries)} lines from {first} to {last}: {what}"


def current_review(config: SiloConfig) -> Review:
    """Ask the server for the run's description, and work out what it would do here."""
    credentials = credentials_of(config)
    if not credentials.certificate.exists():
        found = (
            f"silo {config.silo} has no certificate in {config.state}; start the agent, which enrols, then ask again"
        )
        raise AnchorageError(silo.NOT_ENROLLED, found)
    return Review.of(describe(config.server, credentials, config.proxy), config, read_policy(config.policy))
