"""The federation that is attacked: a server and two honest agents, each a process, and members of which the scripts have the keys."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attack_scripts import NotHeldError, held
from eventually import eventually
from federation_documents import null_study
from federation_in_process import null_digests
from federation_processes import Process, Site
from hostile_silo import HostileSilo, enrolled
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.journal import read_journal
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.pki import Credentials
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.safetensors_file import read_safetensors

HONEST = ("a", "b")
HOSTILE = ("c", "d", "e")
IMAGES = 100
"""Images that hostile members say to have."""
ENDLESS = 1_000_000
"""Rounds of a federation that the driver ends."""
DEFECTS = ("Traceback (most recent", "traceback", "an exception in the trainer process")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than ends of lines and tabs."""
WEIGHTS = {
    "encoder.weight": np.linspace(-1, 1, 400_000, dtype=np.float32),
    "encoder.steps": np.array([3, 4]),
    "classifier.bias": np.zeros(3, np.float32),
}
"""Two chunks."""


def small_study(folder: Path, *, silos: int, rounds: int = ENDLESS, **spec: Any) -> Study:
    """Return a federation of null trainers whose model has two chunks."""
    study = null_study(folder, silos=silos, rounds=rounds, **spec)
    save_file(WEIGHTS, folder / "initial.safetensors")
    return study


class Federation(Site):
    """A federation of which some members are hostile.

    Nobody waits for a hostile member while its session has no images. So every round is that of the honest silos alone, and its model, byte for
    byte, the one of a federation that has no other members.
    """

    honest, hostile = HONEST, HOSTILE

    def __init__(self, folder: Path, *, silos: int = 0, **spec: Any) -> None:
        fields = {"protocol": {"minSilos": len(self.honest), "roundDeadlineSeconds": 3600}, **spec}
        count = silos or len(self.honest) + len(self.hostile)
        super().__init__(small_study(folder / "federation", silos=count, **fields))
        self.folder = folder
        self._alone = small_study(folder / "alone", silos=len(self.honest))
        self._expected: list[str] = []
        self._checked = self._origin = 0
        self._read_to: dict[int, int] = {}
        self.members: dict[str, HostileSilo] = {}
        self.current: Process | None = None

    def begin(self) -> None:
        """Start everything, and wait for the first round."""
        self.current = self.server()
        for silo in self.hostile:
            self.member(silo).park()
        for silo in self.honest:
            self.null_agent(silo)
        self.goes_on()

    def credentials(self, silo: str) -> Credentials:
        """Enrol a silo with a key of this process."""
        return enrolled(self.endpoints, self.workdir.authority, self.federation, silo, self.folder / "keys" / silo)

    def member(self, silo: str) -> HostileSilo:
        """Return a hostile member, enrolled."""
        if silo not in self.members:
            self.members[silo] = HostileSilo(self.endpoints["silos"], self.credentials(silo))
        return self.members[silo]

    @cached_property
    def layout(self) -> Layout:
        """Layout of an update, as the server describes it to a member."""
        run = json.loads(describe(self.endpoints["silos"], self.member("c").credentials))
        return Layout.from_json(run["up"])

    def rounds(self) -> list[RoundRecord]:
        """Return the committed rounds."""
        return [entry.record for entry in read_journal(self.workdir.journal)]

    def await_round(self, number: int) -> RoundRecord:
        """Wait for the commit of a round."""

        def there() -> RoundRecord | None:
            if self.current is not None and not self.current.running:
                raise NotHeldError(f"the server ended: {self.current.lines[-3:]}")
            records = self.rounds()
            return records[number] if len(records) > number else None

        return eventually(there, f"round {number} is not committed")

    def goes_on(self) -> str:
        """See that further rounds are committed, and `check_rounds`."""
        self.await_round(len(self.rounds()) + 1)
        return self.check_rounds()

    def check_rounds(self) -> str:
        """See that the committed rounds are from both honest silos alone, with the bytes that they have without an attack."""
        records = self.rounds()
        while len(self._expected) < (played := len(records) - self._origin):
            self._expected = null_digests(self._alone, max(32, 2 * played))
        for record in records[self._checked :]:
            counted = [part.name for part in record.silos if part.weight > 0]
            held(not record.round or counted == list(HONEST), f"round {record.round} is of a and b", counted)
            held(
                record.digest == self._expected[record.round - self._origin],
                f"round {record.round} is the same model",
                record.digest,
            )
        self._checked = len(records)
        self.check_logs()
        return f"round {records[-1].round} has the same model"

    def take_in(self) -> int:
        """Wait for a round, and expect, where hostile members counted in one, what the honest silos alone make of its model; return in how many.

        No member may take part any more.
        """
        self.await_round(len(self.rounds()))
        news = self.rounds()[self._checked :]
        counted = [record for record in news if any(part.weight > 0 and part.name in HOSTILE for part in record.silos)]
        if counted:
            number, model = eventually(self._newest_model, "the newest round has a model")
            held(number >= counted[-1].round, "no member takes part any more", number)
            held(all(np.isfinite(array).all() for array in model.values()), "the model is finite", counted[-1].silos)
            self._alone = small_study(self.folder / f"alone-{number}", silos=len(HONEST))
            save_file(model, self._alone.file.parent / "initial.safetensors")
            self._origin, self._checked, self._expected = number, number + 1, []
        return len(counted)

    def _newest_model(self) -> tuple[int, dict[str, Any]] | None:
        """Read the newest checkpoint; None where the server writes over it meanwhile."""
        path = max((self.workdir.server / "checkpoints").glob("round-*.safetensors"))
        record = self.await_round(int(path.stem.removeprefix("round-")))
        with suppress(AnchorageError):
            arrays = read_safetensors(path, self.layout)
            if arrays.model.digest == record.digest:
                return record.round, arrays.model.arrays()
        return None

    def check_logs(self) -> None:
        """See that no process said that it has a defect."""
        for process in self.processes:
            news = process.lines[self._read_to.get(process.pid, 0) :]
            self._read_to[process.pid] = len(process.lines)
            defects = [line for line in news if any(defect in line for defect in DEFECTS)]
            held(not defects, "no process has a defect", defects[:3])

    def part_of(self, record: RoundRecord, silo: str) -> Any:
        """Return a silo's part in a round."""
        (silo_record,) = [part for part in record.silos if part.name == silo]
        return silo_record

    def log(self) -> list[str]:
        """Return the server's log."""
        assert self.current is not None
        return list(self.current.lines)

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            member.close()
        super().__exit__()


def command(module: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the product to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
    )  # fmt: skip
