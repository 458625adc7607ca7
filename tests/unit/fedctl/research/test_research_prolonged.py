"""What a finished simulation leaves: models with a card, and what more rounds go on from."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
from drawn_images import shade
from test_research_simulate import DOCUMENTS, PART, PERSIST, refused, simulate

from anchorage.api.errors import commands, data
from anchorage.api.model_card import CARD, CARD_TEXT, ModelCard
from anchorage.transport.tensors.safetensors_file import read_description
from fedctl.research.results import read_results


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DOCUMENTS)
    return path


def test_every_seed_leaves_its_models_with_a_card(file: Path) -> None:
    (seed,) = json.loads(simulate(file, "-o", "json").stdout)["seeds"]
    folder = file.parent / "work" / "models" / "5"
    card = ModelCard.model_validate_json((folder / CARD).read_bytes())
    assert card.final.digest == read_description(folder / "final.safetensors")[1]["digest"] == seed["digest"]
    assert (card.rounds, card.seed, card.method) == (1, 5, "FedAvg")
    assert [(silo.name, silo.labels, silo.rounds) for silo in card.silos] == [("a", "All", 1)]
    assert card.final.assessment is not None
    assert card.final.assessment.metrics["accuracy"] == seed["rounds"][-1]["metrics"]["accuracy"]
    assert [(part.part, sum(part.classes.values())) for part in card.images] == [("validation", 179)]
    text = (folder / CARD_TEXT).read_text()
    assert text.startswith("# Model card: tiny") and "nothing travelled" in text and "TLS" not in text
    assert "trained in a simulation" in card.limits[0]
    simulate(file, "--set", "spec.rounds=2")
    assert ModelCard.model_validate_json((folder / CARD).read_bytes()).rounds == 2


COSINE = ("--set", "spec.method.local.optimiser.sgd.schedule=Cosine")
HELPED = (
    *("--set", "spec.method={name: FedMatch, local: {epochs: 1, batchSize: 50}, pseudoLabels: {helpers: {every: 1, helpers: 1, threshold: 0.1}}}"),
    *("--set", "silo.spec.labels=Partial", "--set", "silo.spec.managed.data.labelledPercent=50", "--silos", 3),
)  # fmt: skip
ASYNCHRONOUS = ("--set", "spec.protocol.mode=Asynchronous", "--silos", 3)
TO_3 = ("--set", "spec.rounds=3")


@pytest.mark.parametrize(
    ("options", "expected"),
    [(PERSIST[:2], ["1/3", "2/3", "3/3"]), (HELPED, ["1/3", "2/3", "3/3"]), (COSINE, None), (ASYNCHRONOUS, None)],
)
def test_more_rounds_prolong_a_finished_simulation(
    options: tuple[object, ...], expected: list[str] | None, file: Path
) -> None:
    """To the very model of one that had as many from the start; where rounds depend on how many there are, they begin anew."""
    uncut = json.loads(simulate(file, *options, *TO_3, "--workdir", file.parent / "whole", "-o", "json").stdout)
    assert simulate(file, *options).exit_code == 0
    longer = simulate(file, *options, *TO_3, "-o", "json")
    (seed,) = json.loads(longer.stdout)["seeds"]
    assert seed["digest"] == uncut["seeds"][0]["digest"] and len(seed["rounds"]) == 4
    shown = [line.split()[1] for line in longer.stderr.splitlines() if "committed" in line]
    assert shown == (expected or ["0/3", "1/3", "2/3", "3/3"])
    assert "finished before" in simulate(file, *options, *TO_3).stdout
    shorter = simulate(file, *options, "--set", "spec.rounds=2")
    assert refused(shorter) is commands.WORKDIR_TAKEN
    assert "differs in spec.rounds (3 rounds are committed);" in str(shorter.exception)


def test_a_seed_without_its_checkpoints_is_prolonged_from_the_start(file: Path) -> None:
    uncut = json.loads(simulate(file, *TO_3, "--workdir", file.parent / "whole", "-o", "json").stdout)
    simulate(file)
    rmtree(file.parent / "work" / "seed-5")
    assert json.loads(simulate(file, *TO_3, "-o", "json").stdout)["seeds"][0]["digest"] == uncut["seeds"][0]["digest"]


def test_seeds_of_several_lengths_are_not_compared(file: Path) -> None:
    simulate(file, "--seeds", 2)
    simulate(file, *TO_3)
    assert [seed.seed for seed in read_results(file.parent / "work").seeds] == [5]
    simulate(file, *TO_3, "--seeds", 2)
    assert [len(seed.rounds) for seed in read_results(file.parent / "work").seeds] == [4, 4]


def test_images_that_changed_are_named(file: Path) -> None:
    images = file.parent / "own" / "pool"
    for label in range(10):
        (images / str(label)).mkdir(parents=True)
        for number in range(3):
            shade(20 * label + number).save(images / str(label) / f"{number}.png")
    file.write_text(DOCUMENTS.replace(PART, "{format: ImageFolder, claimName: own, path: pool}"))
    assert simulate(file).exit_code == 0
    (images / "3" / "1.png").unlink()
    changed = simulate(file, *TO_3)
    assert refused(changed) is data.IMAGES_CHANGED
    assert "silo a: the images changed since training began: 3 2 (were 3)" in str(changed.exception)
    assert simulate(file, *TO_3, "--set", "silo.spec.managed.data.onChange=Allow").exit_code == 0
    other = simulate(file, *TO_3, "--workdir", file.parent / "other")
    assert other.exit_code == 0, "another folder begins with the images that are there"
