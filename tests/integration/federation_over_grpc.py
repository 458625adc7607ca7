"""A federation over real sockets with mutual TLS and the server's store on disk, its server and silos as threads of one process."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from anchorage.api.federation import Silo
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.events import tell_all
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.silo import SiloWorker
from anchorage.engine.stages import stage_learner
from anchorage.engine.store import DiskStore
from anchorage.learning.data import read
from anchorage.learning.learners import build_silo_learner
from anchorage.methods import PRESETS
from anchorage.methods.composition import Composition, round_settings
from anchorage.simulation.run import WallClock
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.server import GrpcSiloLink
from anchorage.transport.messages import Profile
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, server_uri, silo_uri
from anchorage_server.held_heads import HeldHeads
from anchorage_server.learner import choose_learners
from anchorage_silo.audit import AuditLog
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import RunTerms

WAIT_SECONDS = 120.0


def digest_over_grpc(study: Study, folder: Path, data_root: Path | None = None) -> str:
    """Play a federation to its end and return the digest of its last model; images lie in the folder, or below another data root."""
    spec, name = study.federation.spec, study.federation.metadata.name
    authority = Authority.create(folder / "authority", name)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    learners, held_out = choose_learners(
        spec, data_root or study.file.parent, folder / "images", bytes(32), begun=False
    )
    composition = Composition(study, learners)
    run = composition.describe(held_out)
    with ExitStack() as stack:
        identity = composition.identity(composition.frozen())
        store = stack.enter_context(closing(DiskStore(folder / "server", identity)))
        link = GrpcSiloLink(
            listen="127.0.0.1:0",
            credentials=_server_files(authority, folder, name),
            welcome=run.to_json(),
            admit=lambda silo, key: True,
            renew=lambda csr, silo: b"",
            heads=HeldHeads(folder / "server" / "audit-heads"),
            clock=WallClock(),
        )
        port = link.start()
        stack.callback(link.stop)
        engine = composition.engine(
            round_settings(study), link=link, store=store, clock=WallClock(), observer=tell_all()
        )
        for silo in study.silos:
            stack.enter_context(_agent(silo, run, authority, folder, data_root or folder, port))
        return engine.run().digest


@contextmanager
def _agent(
    silo: Silo, run: RunDescription, authority: Authority, folder: Path, data_root: Path, port: int
) -> Iterator[None]:
    """Connect a silo, and wait for the end of its orders."""
    name, managed = silo.metadata.name, silo.spec.managed
    assert managed is not None
    images, _ = read(managed.data, data_root, run.model, run.seed)
    state = folder / name
    state.mkdir()
    files = Credentials(state / "silo.key", state / "silo.pem", authority.certificate_path)
    request = SigningRequest.make(new_key(files.key), silo_uri(run.federation, name))
    files.save_certificate(authority.issue_silo(request, name))

    def build(stage: RunDescription) -> SiloLearner:
        labels = silo.spec.labels
        return build_silo_learner(run=stage, silo=name, labels=labels, images=images, state=state, device="cpu")

    learner = stage_learner(run, build)
    link = GrpcServerLink(
        server=f"127.0.0.1:{port}", credentials=files, profile=Profile(silo.spec.labels, len(images.labels), "test")
    )
    worker, audit = _behind_its_gate(link, learner, run, state, len(images.labels), silo.spec.labels)
    thread = threading.Thread(target=worker.run, name=name)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_SECONDS)
        link.close()
        worker.stop()
        worker.join()
        audit.close()
        assert not thread.is_alive()


def _behind_its_gate(
    link: GrpcServerLink, learner: SiloLearner, run: RunDescription, folder: Path, images: int, labels: str
) -> tuple[SiloWorker, AuditLog]:
    """Let out only what the methods' own names and declarations allow."""
    terms = RunTerms.of(run, labels)
    arrays = {name for method in terms.methods for name in PRESETS[method.name].sent}
    policy = Policy(
        allowed_methods=tuple({method.name for method in terms.methods}),
        allowed_auxiliary_data=(*arrays, *terms.extras, *(array.name for array in run.model.task.tally_arrays())),
        relative_noise="0",
    )
    audit, joined = AuditLog(folder / "audit.jsonl"), AgentState(folder / "silo.pem")
    joined.set_joined(images)
    gate = OutboundGate(link, policy, audit, terms, joined, scored_by=run.model.task)
    feedback = ErrorFeedback(folder / "feedback")
    return SiloWorker(gate, learner, MemoryBuffers(), threads=True, admit=gate.admit, feedback=feedback), audit


def _server_files(authority: Authority, folder: Path, federation: str) -> Credentials:
    files = Credentials(folder / "server.key", folder / "server.pem", authority.certificate_path)
    request = SigningRequest.make(new_key(files.key), server_uri(federation))
    files.save_certificate(authority.issue_server(request, ["127.0.0.1"]))
    return files
