"""Members that lie in secure aggregation, to a server process, beside agent processes that are honest."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from attack_scripts import Place, held, refused, script
from attacked_federation import IMAGES, WEIGHTS, Federation
from eventually import eventually
from federation_in_process import null_step
from federation_silos import credentials_of
from lying_members import Case, Liar, LyingLink

from anchorage.api.errors import Failure, rounds
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.messages import Profile, TaskKind
from anchorage.transport.pki import Credentials
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.safetensors_file import read_safetensors
from anchorage_silo.null_learner import NullLearner

LEFT_OUT = "left out until the server starts again"
TOLERANCE = 1e-4
"""Rounding of fixed-point numbers and of float32, relative to what rounds have changed."""


class SummedFederation(Federation):
    """A federation with secure aggregation of three honest agents; the others have an update only while they lie."""

    honest, hostile = ("a", "b", "c"), ("d", "e", "f", "g", "h")

    def __init__(self, folder: Path) -> None:
        protocol = {"minSilos": len(self.honest), "roundDeadlineSeconds": 3600, "secureAggregation": {}}
        super().__init__(folder, protocol=protocol)
        self.left_out: dict[str, str] = {}

    def begin(self) -> None:
        """Start everything, and wait for the first round: silos that are awaited have a minute for a step, so all come at once."""
        self.current = self.server()
        agents = [self.null_agent(silo) for silo in self.honest]
        agents[0].wait_for("asks silo")
        for silo in self.hostile:
            self.member(silo).park()
        self.goes_on()

    def credentials(self, silo: str) -> Credentials:
        """Give a silo a certificate without a token."""
        return credentials_of(self, silo)

    def goes_on(self) -> str:
        """See that the honest silos' next rounds are committed, and that the model is all rounds' changes, as the journal weighs them."""
        first = len(self.rounds()) + 1  # who has lied may still count in the one that is open
        self.await_round(first + 1)
        for record in self.rounds()[first:]:
            counted = [part.name for part in record.silos if part.weight > 0]
            held(counted == list(self.honest), f"round {record.round} is of the honest silos", counted)
        self.check_model()
        self.check_logs()
        return f"round {self.rounds()[-1].round} and its model are right"

    def check_model(self) -> None:
        """See that the newest model is the first one and what the silos that counted have changed."""
        number, arrays = eventually(self._newest, "a checkpoint can be read")
        change = sum(
            part.weight * null_step(part.name)[0] for record in self.rounds()[: number + 1] for part in record.silos
        )
        for name, first in WEIGHTS.items():
            expected = first + change if first.dtype.kind == "f" else first
            right = np.allclose(arrays[name], expected, rtol=TOLERANCE, atol=TOLERANCE * number)
            held(right, f"the model of round {number} is right", (name, arrays[name][:3], expected[:3]))

    def _newest(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Read the newest checkpoint; None where the server has written another over it meanwhile."""
        files = sorted((self.workdir.server / "checkpoints").glob("round-*.safetensors"))
        number = int(files[-1].stem.partition("-")[2])
        with suppress(Exception):
            arrays = read_safetensors(files[-1])
            if len(self.rounds()) > number and arrays.model.digest == self.rounds()[number].digest:
                return number, dict(arrays.model.arrays())
        return None

    @contextmanager
    def liar(self, silo: str, kind: TaskKind, lie: str) -> Iterator[None]:
        """Have a member take part that keeps to the protocol but for one lie."""
        credentials = self.member(silo).credentials
        run = RunDescription.model_validate_json(describe(self.endpoints["silos"], credentials))
        layout, step = Layout.from_json(run.down), null_step(silo)[0]
        liar = Liar(Case(kind, lie, liar=silo), run, silo, IMAGES, credentials)
        link = GrpcServerLink(
            server=self.endpoints["silos"], credentials=credentials, profile=Profile("All", IMAGES, "0.1.0")
        )
        lying = LyingLink(link, liar)
        worker = SiloWorker(
            lying, NullLearner(layout, Layout.from_json(run.up), step, IMAGES), MemoryBuffers(), secure=liar
        )
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            link.close()
            thread.join()
            self.member(silo).park()

    def named(self, silo: str) -> str:
        """Wait until the server names a silo and leaves it out, and return the code."""

        def told() -> str:
            entries = (json.loads(line) for line in self.log() if LEFT_OUT in line)
            self.left_out = {entry["silo"]: entry["code"] for entry in entries}
            return self.left_out.get(silo, "")

        named_silo = eventually(told, f"{silo} is not named")
        held(self.left_out.keys() <= set(self.hostile), "nobody else is named", self.left_out)
        return named_silo


def _name_after(
    federation: SummedFederation, silo: str, kind: TaskKind, lie: str, failure: Failure = rounds.UNUSABLE_ANSWER
) -> str:
    """Play a lie until its member is named."""
    with federation.liar(silo, kind, lie):
        code = refused(federation.named(silo), failure.code)
    return f"{code} names it; {federation.goes_on()}"


@script(place=Place.SUMMED)
def share_left_out(federation: SummedFederation) -> str:
    return _name_after(federation, "d", TaskKind.REVEAL_SHARES, "leaves out a silo")


@script(place=Place.SUMMED)
def wrong_shares(federation: SummedFederation) -> str:
    return _name_after(federation, "e", TaskKind.REVEAL_SHARES, "reveals no share")


@script(place=Place.SUMMED)
def more_weight_than_images(federation: SummedFederation) -> str:
    return _name_after(federation, "f", TaskKind.SHOW_KEYS, "says that it weighs 10^9")


@script(place=Place.SUMMED)
def shares_of_no_secret(federation: SummedFederation) -> str:
    return _name_after(federation, "g", TaskKind.SHARE_SECRETS, "deals no polynomial")


@script(place=Place.SUMMED)
def update_without_masks(federation: SummedFederation) -> str:
    return _name_after(federation, "h", TaskKind.TRAIN, "sends no masks", rounds.IMPOSSIBLE_SUM)
