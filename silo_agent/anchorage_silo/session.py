"""One agent's life: enrol, learn what the run is, read the images, join, carry out orders."""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import ValidationError

from anchorage import __version__
from anchorage.api.errors import AnchorageError, silo, transfer
from anchorage.api.run import RunDescription
from anchorage.api.single import read_document
from anchorage.engine.silo import SiloWorker
from anchorage.transport.grpc import GrpcServerLink
from anchorage.transport.grpc.describe import describe
from anchorage.transport.grpc.renewal import renew
from anchorage.transport.messages import Profile
from anchorage.transport.pki import Credentials, silo_uri
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.audit import AuditLog
from anchorage_silo.config import SiloConfig
from anchorage_silo.enrolment import credentials_of, enrolled, forget_identity, invited_again
from anchorage_silo.files import unusable
from anchorage_silo.frames import Setup
from anchorage_silo.gate import Gate
from anchorage_silo.health import probed
from anchorage_silo.mapped import MappedBuffers
from anchorage_silo.patience import ATTEMPT_SECONDS, LONGEST_PAUSE_SECONDS, Patience
from anchorage_silo.policy import Policy
from anchorage_silo.process import TrainerProcess
from anchorage_silo.renewal import Renewal
from anchorage_silo.standing import Standing

LOOK = "the look whether the run goes on"
LOOK_SECONDS = 60.0
"""How often an agent that stays looks whether a run that is over goes on."""

_log = logging.getLogger(__name__)


def take_part(config: SiloConfig) -> None:
    """Take part in the federation until its run is over, and after that stay where the configuration says so.

    Raises
    ------
    AnchorageError
        The silo cannot take part, or not any more.
    """
    policy = read_document(config.policy, Policy) if config.policy is not None else Policy()
    standing = Standing(credentials_of(config).certificate)
    patience = Patience(config.patience_seconds, standing)
    with (
        own_folder(config.state),
        closing(AuditLog(config.state / "audit.jsonl")) as audit,
        probed(config.probes_listen, standing),
    ):
        credentials, text = _admitted(config, audit, patience)
        with closing(_renewal(config, credentials, audit, standing)):
            while True:
                standing.finished(_play(config, policy, text, credentials, audit, standing))
                if not config.stay:
                    return
                text = _changed(config, text, credentials, standing)


def _admitted(config: SiloConfig, audit: AuditLog, patience: Patience) -> tuple[Credentials, str]:
    """Enrol and ask for the run's description until the server takes the silo for a member; return credentials and description.

    A silo whose key is refused and that was invited anew enrols with a new key.

    Raises
    ------
    AnchorageError
        The silo cannot enrol, the server refuses it, or does not answer.
    """
    while True:
        credentials = enrolled(config, audit, patience)

        def ask(credentials: Credentials = credentials) -> str | None:
            try:
                return describe(config.server, credentials, config.proxy)
            except AnchorageError as error:
                if error.failure is transfer.SILO_NOT_ADMITTED and invited_again(config):
                    return None
                raise

        text = patience.until_answered("the question for the run", ask)
        if text is not None:
            return credentials, text
        _log.warning("the server refuses this silo's key, and there is a new token: enrolling with a new key")
        forget_identity(config)


def _changed(config: SiloConfig, text: str, credentials: Credentials, standing: Standing) -> str:
    """Wait until the run's description is another one, such as when more rounds are asked for, and return it."""
    while True:
        standing.vitals.expect(LOOK, LOOK_SECONDS + ATTEMPT_SECONDS)
        time.sleep(LOOK_SECONDS)
        try:
            found = describe(config.server, credentials, config.proxy)
        except AnchorageError as error:  # the run is over: the server may go away, and the silo may leave
            _log.debug("no news of the run: %s", error)
        else:
            if found != text:
                standing.vitals.rest(LOOK)
                return found


def _renewal(config: SiloConfig, credentials: Credentials, audit: AuditLog, standing: Standing) -> Renewal:
    """Start to renew the certificate."""

    def ask(request: bytes) -> bytes:
        return renew(config.server, credentials, request, config.proxy)

    renewal = Renewal(credentials, silo_uri(config.federation, config.silo), ask, audit, standing.vitals)
    renewal.start()
    return renewal


def _play(
    config: SiloConfig, policy: Policy, text: str, credentials: Credentials, audit: AuditLog, standing: Standing
) -> str:
    """Read the images, join, carry out orders, and return why the run is over.

    Raises
    ------
    AnchorageError
        The silo cannot take part, or not any more.
    """
    run = _read_description(text)
    setup = _setup(config, policy, text, run)
    with closing(TrainerProcess(setup)) as trainer:
        standing.waits("ReadingImages: the trainer's process reads the images")
        samples = trainer.start()
        policy.check_samples(samples)
        audit.record("join")
        link = GrpcServerLink(
            server=config.server,
            credentials=credentials,
            profile=Profile(config.labels, samples, __version__),
            longest_pause_seconds=LONGEST_PAUSE_SECONDS,
            proxy=config.proxy,
            contact=standing.contact,
        )
        standing.joined(samples)
        methods = [*(stage.method.name for stage in run.warm_up), run.method.name]
        layouts = map(Layout.from_json, (*(stage.up for stage in run.warm_up), run.up))
        beside = ["control"] if any(layout.of_network() != layout for layout in layouts) else []
        gate = Gate(link, policy, audit, methods, standing, beside)
        _log.info("joining federation %s with %d images", config.federation, samples)
        return work(gate, trainer, MappedBuffers(config.state, terms=json.dumps(vars(setup)).encode()))


def work(gate: Gate, trainer: TrainerProcess, buffers: MappedBuffers) -> str:
    """Carry out orders until the run is over, and return why it is; ends link and trainer.

    Raises
    ------
    AnchorageError
        The connection cannot come back, or a failure could not be reported.
    """
    worker = SiloWorker(gate, trainer, buffers, threads=True, admit=gate.admit)
    try:
        why = worker.run() or "the connection was closed"
        _log.info("the run is over: %s", why)
        return why
    finally:
        worker.stop()
        trainer.close()
        gate.close()
        worker.join()


def _read_description(text: str) -> RunDescription:
    try:
        return RunDescription.model_validate_json(text)
    except ValidationError as error:
        found = f"the run's description has {error.error_count()} unknown or wrong fields; bring both sides to the same version"
        raise AnchorageError(transfer.MALFORMED_MESSAGE, found) from error


def _setup(config: SiloConfig, policy: Policy, text: str, run: RunDescription) -> Setup:
    return Setup(
        silo=config.silo,
        labels=config.labels,
        device=config.device,
        state=str(config.state),
        data_root=str(config.data_root),
        run=text,
        down=run.down,
        up=run.up,
        data=config.data.model_dump_json(by_alias=True) if config.data is not None else "",
        trainer=config.trainer.model_dump_json(by_alias=True),
        clip_norm=float(policy.clip_norm) if policy.clip_norm is not None else None,
        noise_std=float(policy.noise_std) if policy.noise_std is not None else None,
        noise_seed=policy.noise_seed,
    )


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Make the state folder where it is missing, and hold it alone.

    Raises
    ------
    AnchorageError
        It cannot be used, or another agent uses it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise AnchorageError(silo.AGENT_RUNNING, f"another agent uses {folder}") from error
    finally:
        os.close(handle)
