"""A finished run of the digits' example, for tests."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from anchorage.api.model_card import Assessment, Calibration, ClassScores, Interval, ReliabilityBin, TrainedModel
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.store.records import record_to_json
from anchorage.methods import validate_study
from anchorage.methods.model_card import make_card, write_card
from anchorage.methods.resolution import resolve
from fedctl.workdir import Workdir

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"


def records(rounds: int, silos: int, accepted: int = 0) -> Iterator[RoundRecord]:
    for number in range(rounds + 1):
        parts = tuple(
            SiloRecord(
                f"silo-{s}",
                "Counted",
                1 / silos,
                {"train": 5, **({"unlabelled": accepted, "selected": accepted} if accepted else {})},
                {"loss": 1.0, "acceptance": 0.1 * (s % 9), "held_out_accuracy": 0.5},
            )
            for s in range(silos)
        )
        metrics = {"accuracy": 1 - 1 / (number + 2), "loss": 1 / (number + 1)}
        yield RoundRecord(number, f"d{number}", 1000.0 + number, metrics, parts if number else ())


def assessment(names: list[str]) -> Assessment:
    area = Interval(value=0.9, low=0.85, high=0.95)
    known = {"images": 9, "recall": 0.5, "specificity": 0.5, "precision": None, "auroc": area}
    scores = (ClassScores(name=n, roc=((0, 0), (0.5, 1), (1, 1)), **known) for n in names)
    bins = tuple(
        ReliabilityBin(low=k / 5, high=(k + 1) / 5, images=k, confidence=(k + 0.5) / 5 if k else None, accuracy=k / 5)
        for k in range(5)
    )
    return Assessment(
        part="test",
        images=90,
        metrics={"accuracy": 0.7123, "loss": 0.4},
        macro_auroc=area,
        resamples=1000,
        classes=tuple(scores),
        calibration=Calibration(expected_error=0.05, brier=0.2, bins=bins),
        counts={"confusion": tuple(tuple(range(len(names))) for _ in names)},
    )


def make_run(
    root: Path, *, rounds: int = 3, silos: int = 3, names: list[str] | None = None, accepted: int = 0
) -> Workdir:
    """Write what a run leaves: documents and journal, and with `names` of classes a card and an audit log; `accepted`: pseudo-labels of each silo."""
    run = Workdir(root)
    run.make()
    shutil.copy(DIGITS, run.federation)
    study, history = validate_study(DIGITS), list(records(rounds, silos, accepted))
    run.journal.write_text("".join(json.dumps(record_to_json(record)) + "\n" for record in history))
    if names is None:
        return run
    spec = study.federation.spec
    about = RunDescription(
        federation="digits",
        seed=1,
        model=spec.model_description,
        method=resolve(spec.method),
        down="{}",
        up="{}",
        rounds=rounds,
        mode="Synchronous",
    )
    stored = [
        TrainedModel(file=f"{role}.safetensors", digest=role, round=rounds, assessment=assessment(names))
        for role in ("final", "best")
    ]
    run.model.mkdir()
    write_card(
        run.model, make_card(study, about, history, {}, final=stored[0], best=stored[1], classifier_trained=True)
    )
    audit = run.silo("silo-0") / "state" / "audit.jsonl"
    audit.parent.mkdir(parents=True)
    lines = [{"kind": "join", "bytes": 0}, {"kind": "update", "bytes": 1000}, {"kind": "update", "bytes": 1500}]
    audit.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "upd')
    return run
