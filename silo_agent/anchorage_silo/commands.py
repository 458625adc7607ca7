"""Commands for the people at a hospital: review, approve."""

import argparse
import sys

from anchorage.api.errors import AnchorageError, silo
from anchorage.transport.grpc.single_calls import describe
from anchorage_silo.approval import Approvals
from anchorage_silo.config import SiloConfig
from anchorage_silo.enrolment import credentials_of
from anchorage_silo.policy import read_policy
from anchorage_silo.review import Review


def carry_out(chosen: argparse.Namespace, config: SiloConfig) -> None:
    """Carry out a command and print what came out.

    Raises
    ------
    AnchorageError
        The silo is not enrolled, the server refuses it or does not answer, or what is to be approved is out of date.
    """
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


def current_review(config: SiloConfig) -> Review:
    """Ask the server for the run's description, and work out what it would do here."""
    credentials = credentials_of(config)
    if not credentials.certificate.exists():
        found = (
            f"silo {config.silo} has no certificate in {config.state}; start the agent, which enrols, then ask again"
        )
        raise AnchorageError(silo.NOT_ENROLLED, found)
    return Review.of(describe(config.server, credentials, config.proxy), config, read_policy(config.policy))
