"""A run on this machine: its server while that is running, otherwise its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.inference import DESCRIPTION
from anchorage.api.model_card import CARD, ModelCard
from anchorage.api.regular_files import open_regular, read_regular
from anchorage.api.status import ALL_ROUNDS_COMMITTED, STORING_RESULTS, ConditionType, timestamp
from anchorage.transport.pki import certificate_of, key_fingerprint
from fedctl.observation import observe, read_federation_of, read_journal, require_run
from fedctl.source import Event, ModelFile, Observation, Round, SiloRow, no_model, parse_card
from fedctl.workdir import Workdir, read_json

FOLLOW_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A run in a working folder; see `fedctl.source.Source`."""

    run: Workdir
    """The folder."""

    def observe(self) -> Observation:
        """Return the documents of the run with its status."""
        status, live = observe(self.run)
        shown = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        return Observation({**read_federation_of(self.run), "status": shown}, status, live)

    def silos(self) -> Sequence[SiloRow]:
        """Return the silos of the server's status, with their certificates, which lie on this machine."""
        rows = observe(self.run)[0].model_dump(mode="json", by_alias=True)["silos"]
        return [{**row, "certificate": self._certificate(row["name"])} for row in rows]

    def _certificate(self, silo: str) -> dict[str, str] | None:
        """Return expiry and key of a silo's certificate; None where it has none yet."""
        try:
            pem = read_regular(self.run.silo(silo) / "state" / "silo.crt")
            ends = certificate_of(pem, silo).not_valid_after_utc.timestamp()
            return {"notAfter": timestamp(ends), "key": key_fingerprint(pem)}
        except (OSError, AnchorageError):
            return None

    def rounds(self) -> Sequence[Round]:
        """Return the journal."""
        require_run(self.run)
        return read_journal(self.run)

    def events(self) -> Sequence[Event]:
        """Return committed rounds, failures of silos in them, and the status's conditions."""
        status, _ = observe(self.run)
        about = f"Federation/{read_federation_of(self.run)['metadata']['name']}"
        events: list[Event] = []
        for record in self.rounds():
            time = timestamp(record["time"])
            metrics = ", ".join(f"{name} {value:.4g}" for name, value in record["metrics"].items() if value is not None)
            message = f"round {record['round']}" + (f", {metrics}" if metrics else "")
            events.append(Event(time, "Normal", "RoundCommitted", about, message))
            for silo in record["silos"]:
                if silo["code"]:
                    detail = f"{silo['code']} {silo['message']}, round {record['round']}"
                    events.append(Event(time, "Warning", f"Silo{silo['state']}", f"Silo/{silo['name']}", detail))
        for condition in status.conditions:
            if condition.status == "Unknown":
                continue
            expected = condition.reason in (ALL_ROUNDS_COMMITTED, STORING_RESULTS, STOPPED.reason)
            bad = not expected and condition.status == ("True" if condition.type == ConditionType.FAILED else "False")
            message = f"{condition.type}={condition.status} {condition.message}".strip()
            time = condition.last_transition_time
            events.append(Event(time, "Warning" if bad else "Normal", condition.reason, about, message))
        return sorted(events, key=lambda event: event.time)

    def processes(self) -> Sequence[str]:
        """Return the processes that have written a log."""
        require_run(self.run)
        return sorted(path.stem for path in self.run.log("server").parent.glob("*.log"))

    def log(self, process: str, tail: int, *, follow: bool) -> Iterator[str]:
        """Return the lines of a log file."""
        path = self.run.log(process)
        if not path.exists():
            logs = ", ".join(self.processes()) or "none"
            raise AnchorageError(commands.NO_RUN_HERE, f"{self.run.root} has no log of {process}; there are: {logs}")
        return _lines(path, tail, follow)

    def card(self) -> ModelCard | None:
        """Return the card beside the model."""
        return read_card_at(self.run.model / CARD)

    @contextmanager
    def model(self, *, best: bool) -> Iterator[ModelFile]:
        """Return the stored model; for an unfinished run, the last committed checkpoint."""
        status, _ = observe(self.run)
        stored = status.best_model if best else status.model
        checkpoint = stored or status.last_checkpoint
        if checkpoint is None or (stored is None and checkpoint.round == 0):
            raise no_model(str(self.run.root))
        path = Path(checkpoint.path)
        if not path.exists():
            raise AnchorageError(commands.NO_MODEL_YET, f"{path} is gone; run the command again")
        description = read_json(self.run.model / DESCRIPTION) if stored is not None else None
        yield ModelFile(path, checkpoint.digest, checkpoint.round, description or {})


def read_card_at(file: Path) -> ModelCard | None:
    """Return a model card, None where there is no file.

    Raises
    ------
    AnchorageError
        It is damaged.
    """
    try:
        return parse_card(read_regular(file), str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AnchorageError(commands.NO_RESULTS, f"{file} is no model card: {error.strerror}") from error


def _lines(path: Path, tail: int, follow: bool) -> Iterator[str]:
    """Yield the end of a file, and with `follow` added lines, without an incomplete last line."""
    content = read_regular(path)
    offset = len(content) if not follow else content.rfind(b"\n") + 1
    yield from content[:offset].decode(errors="replace").splitlines()[-tail:] if tail else ()
    while follow:
        sleep(FOLLOW_SECONDS)
        with open_regular(path) as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                yield line.decode(errors="replace").rstrip("\n")
