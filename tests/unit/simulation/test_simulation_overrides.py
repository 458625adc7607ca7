"""Slots overridden at random: what results is refused with a reason, or plays a round; nothing else ever happens."""

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.alias_generators import to_camel

from anchorage.api.files import Study
from anchorage.api.method import SLOTS
from anchorage.api.mistakes import DocumentError
from anchorage.api.piece import PIECES
from anchorage.api.slot import Slot
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.snippet import snippet

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from anchorage.simulation.run import simulate

DRAWN, PLAYED = 40, 2
TINY = ("spec.rounds=1", "silo.spec.managed.data.partition.parts=40")


def fillings(slot: str) -> list[dict[str, Any]]:
    """Return every alternative of a slot: as it is, and with each word of an option that chooses among words or pieces."""
    studies: list[dict[str, Any]] = []
    for name, kind in PIECES.of(slot).items():
        studies.append({name: {}})
        for option, field in kind.model_fields.items():
            words: Any = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            for inner in (mark for mark in field.metadata if isinstance(mark, Slot)):
                words = fillings(inner.name)
            studies += [{name: {to_camel(option): word}} for word in words]
    return studies


def drawn(number: int, file: Path) -> tuple[str, Study | DocumentError]:
    """Write a preset's own file, and read it with one to three slots overridden."""
    draw = random.Random(number)
    preset = PRESETS[draw.choice(list(PRESETS))]
    file.write_text(snippet(preset))
    work = "cycle.maxEpochs" if preset.slots.local.cycle else "epochs"
    overrides = [f"spec.method.local.{work}=1", *TINY]
    for slot in draw.sample(SLOTS, draw.choice([1, 1, 2, 3])):
        overrides.append(f"spec.method.{to_camel(slot)}={json.dumps(draw.choice(fillings(slot)))}")
    title = f"{number}: {preset.name} {overrides[3:]}"
    try:
        return title, validate_study(file, overrides)
    except DocumentError as error:
        return title, error


def test_slots_overridden_at_random_are_refused_with_a_reason_or_play_a_round(tmp_path: Path) -> None:
    assert {"dvw": {"metric": "MCC"}} in fillings("weighting")
    assert {"anchors": {"objective": {"twoViews": {}}}} in fillings("server_training")
    drawn_studies = [drawn(number, tmp_path / "drawn.yaml") for number in range(DRAWN)]
    for title, refused in drawn_studies:
        if isinstance(refused, DocumentError):
            assert all(mistake.message and mistake.where for mistake in refused.mistakes), title
    playable = ((title, study) for title, study in drawn_studies if isinstance(study, Study))
    for title, study in islice(playable, PLAYED):
        record, _ = simulate(study, tmp_path, tmp_path / title.partition(":")[0])
        assert record.round == 1, title


@pytest.mark.parametrize("name", ["FedAvgSemi", "FedCLR"])
def test_a_classifier_behind_a_projection_head_labels_and_is_trained(name: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(snippet(PRESETS[name]))
    network = "{network: MoonCnn, imageSize: 16, channels: 1}"
    overrides = [*TINY, f"spec.model={network}", "spec.method.local.epochs=1"]
    record, _ = simulate(validate_study(tmp_path / "study.yaml", overrides), tmp_path, tmp_path / "state")
    assert [part.state for part in record.silos] == ["Counted", "Counted"]
