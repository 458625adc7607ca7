"""What a card says in plain words of runs in which something happened: made of records as the engine writes them, and of real scores."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from classification_of import classes as of_classes

from anchorage.algorithms.assessment import assess
from anchorage.api.card_text import markdown, verdict
from anchorage.api.files import Study
from anchorage.api.model_card import Assessment, ModelCard, TrainedModel
from anchorage.api.run import RunDescription
from anchorage.api.verdict import PAGE, Finding, judge
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.learning.data.held_out import describe_held_out
from anchorage.learning.data.images import ImageSet
from anchorage.methods import validate_study
from anchorage.methods.model_card import make_card
from anchorage.methods.resolution import resolve
from anchorage.pieces.weighting.fedavg_semi import FedAvgSemi
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import Manifest

DOCS = Path(__file__).parents[3] / "docs"
CLASSES = ("NORMAL", "PNEUMONIA")
UPDATE = Manifest("layout", 0, ())


def study(tmp_path: Path, method: Mapping[str, Any], labels: Mapping[str, str], **protocol: Any) -> Study:
    table = {"format": "CsvManifest", "claimName": "server", "manifest": "test.csv"}
    spec = {
        "rounds": 4,
        "task": {"classification": {"classes": list(CLASSES)}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1},
        "method": method,
        "protocol": protocol,
        "evaluation": {"validation": {**table, "manifest": "validation.csv"}, "test": table},
    }
    silos = [
        {
            "kind": "Silo",
            "metadata": {"name": name},
            "spec": {"federation": "chest", "labels": kind, "managed": {"data": {**table, "claimName": name}}},
        }
        for name, kind in labels.items()
    ]
    file = tmp_path / "chest.yaml"
    file.write_text(
        "\n---\n".join(map(json.dumps, [{"kind": "Federation", "metadata": {"name": "chest"}, "spec": spec}, *silos]))
    )
    return validate_study(file)


def images(groups: Sequence[str]) -> ImageSet:
    count = len(groups)
    names = tuple(f"image-{row}" for row in range(count))
    group_names = tuple(group or name for group, name in zip(groups, names, strict=True))
    pixels, labels = np.zeros((count, 1, 8, 8), np.uint8), np.zeros(count, np.int64)
    return ImageSet(pixels, labels, names, group_names, labels, CLASSES, np.arange(count, dtype=np.uint64))


def scores(positive: Sequence[float], labels: Sequence[int]) -> Assessment:
    """Score probabilities of PNEUMONIA as the server does."""
    probabilities = np.column_stack([1 - np.array(positive), positive])
    return assess("test", CLASSES, np.array(labels), probabilities, np.random.default_rng(0))


TRUTH = [0] * 80 + [1] * 80
GOOD = scores([0.1] * 70 + [0.9] * 10 + [0.9] * 80, TRUTH)


def parts(*silos: SiloRecord) -> tuple[SiloRecord, ...]:
    return silos


def counted(name: str, weight: float = 0.5, state: str = "Counted", **samples: int) -> SiloRecord:
    return SiloRecord(name, state, weight, samples or {"train": 50, "labelled": 50, "unlabelled": 0, "selected": 0})


def history(*rounds: Sequence[SiloRecord], validation: Sequence[float] = ()) -> list[RoundRecord]:
    accuracy = dict(enumerate(validation, 1))
    return [RoundRecord(0, "d0", 1000.0)] + [
        RoundRecord(
            number,
            f"d{number}",
            1000.0 + number,
            {"balanced_accuracy": accuracy[number], "loss": 1.0} if number in accuracy else {"server_loss": math.nan},
            tuple(silos),
        )
        for number, silos in enumerate(rounds, 1)
    ]


def card(
    documents: Study,
    records: Sequence[RoundRecord],
    scored: Assessment | None = GOOD,
    best: int | None = None,
    groups: Sequence[str] = ("patient-1", "patient-2"),
) -> ModelCard:
    spec = documents.federation.spec
    run = RunDescription(
        federation="chest",
        seed=spec.seed,
        model=spec.model_description,
        method=resolve(spec.method),
        down="{}",
        up="{}",
        rounds=len(records) - 1,
        mode=spec.protocol.mode,
        held_out=describe_held_out([images(groups)], bytes(32), "Refuse"),
    )
    last = records[-1].round
    models = [
        TrainedModel(file=f"{number}.safetensors", digest=str(number), round=number, assessment=scored)
        for number in (last, last if best is None else best)
    ]
    return make_card(documents, run, records, {}, final=models[0], best=models[1], classifier_trained=True)


FEDAVG = {"name": "FedAvg"}
TWO = {"west": "All", "east": "All"}
BOTH = parts(counted("west"), counted("east"))


def problems(model_card: ModelCard) -> dict[str, Finding]:
    gain, *rest = judge(model_card)
    assert gain.kind in ("Gain", "NotScored")
    assert len({finding.kind for finding in rest}) == len(rest)
    return {finding.kind: finding for finding in rest}


def test_a_run_without_problems_has_none_and_says_how_to_compare(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH, BOTH, validation=[0.9, 0.93]))
    assert problems(model_card) == {}
    (gain,) = judge(model_card)
    assert gain.sentence.startswith("The federation reaches a balanced accuracy of 0.938 on 160 test images; ")
    assert gain.sentence.endswith(
        "; what each site reaches alone was not measured (`fedctl run` measures it, unless --no-compare leaves it out)."
    )
    assert gain.page == f"{PAGE}#not-compared"
    for measurable, sentence in (
        ("Anchors", "; what the labels reach alone was not measured (`fedctl run` measures it"),
        ("Nothing", "; it was not compared with training without the federation."),
        (None, "; it was not compared with training without the federation."),
    ):
        assert sentence in judge(model_card.model_copy(update={"measurable": measurable}))[0].sentence


def test_one_class_for_nearly_every_image_is_named_with_the_ranking(tmp_path: Path) -> None:
    rising = [0.51 + 0.001 * place for place in range(159)]
    collapsed = scores([0.49, *rising], TRUTH)
    finding = problems(card(study(tmp_path, FEDAVG, TWO), history(BOTH), collapsed))["OneClass"]
    assert finding.sentence == (
        "The last model predicts PNEUMONIA for 159 of 160 test images, though AUROC is 1.00: "
        "the ranking is good, the decision is not."
    )
    blind = scores([0.9] * 160, TRUTH)
    finding = problems(card(study(tmp_path, FEDAVG, TWO), history(BOTH), blind))["OneClass"]
    assert finding.sentence.endswith(
        "for 160 of 160 test images, and AUROC is 0.50: it hardly tells the classes apart."
    )


def test_a_class_that_nearly_all_images_are_of_is_no_collapse(tmp_path: Path) -> None:
    rare = scores([0.9] * 152 + [0.1] * 7 + [0.9], [1] * 152 + [0] * 8)
    assert "OneClass" not in problems(card(study(tmp_path, FEDAVG, TWO), history(BOTH), rare))


def test_a_best_round_far_above_the_last_is_named(tmp_path: Path) -> None:
    records = history(BOTH, BOTH, BOTH, validation=[0.6, 0.769, 0.5])
    finding = problems(card(study(tmp_path, FEDAVG, TWO), records, best=2))["BestRoundBefore"]
    assert finding.sentence.startswith(
        "The last round is 27 points of balanced accuracy below the best one (round 2): use the best model"
    )
    records = history(BOTH, BOTH, BOTH, validation=[0.6, 0.769, 0.75])
    assert problems(card(study(tmp_path, FEDAVG, TWO), records, best=2)) == {}


SEMI = {"west": "All", "north": "None", "east": "None"}


def weighed(selected: Mapping[str, int]) -> tuple[SiloRecord, ...]:
    """Return silos' parts with the weights that FedAvgSemi gives: west with 100 labelled images, others with 260 without labels."""
    samples = {"west": {"train": 100, "labelled": 100, "unlabelled": 0, "selected": 0}}
    samples |= {name: {"train": 260, "labelled": 0, "unlabelled": 260, "selected": n} for name, n in selected.items()}
    announced = {name: Announcement("1.train", counts, {}, {}, UPDATE) for name, counts in samples.items()}
    shares = FedAvgSemi().weigher(of_classes(2)).weigh(announced, {})
    total = sum(shares.values())
    return tuple(SiloRecord(name, "Counted", shares[name] / total, counts) for name, counts in samples.items())


def test_a_silo_that_learnt_from_next_to_nothing_is_named_with_its_weight(tmp_path: Path) -> None:
    documents = study(tmp_path, {"name": "FedAvgSemi"}, {"west": "All", "east": "None"})
    model_card = card(documents, history(weighed({"east": 1})))
    finding = problems(model_card)["LittleLearnt"]
    assert finding.sentence == (
        "east: 1 image of 260 was learnt from in its last round, and its update counts 50%; images without labels have 50% "
        "of the weight together, however few are learnt from."
    )
    documents = study(tmp_path, {"name": "FedAvgSemi"}, SEMI)
    assert problems(card(documents, history(weighed({"north": 150, "east": 150})))) == {}
    finding = problems(card(documents, history(weighed({"north": 250, "east": 1}))))["LittleLearnt"]
    assert finding.sentence.startswith(
        "east: 1 image of 260 was learnt from in its last round, and its update counts 0.2%;"
    )


def test_images_without_labels_that_nobody_learns_from_are_named(tmp_path: Path) -> None:
    idle = SiloRecord("east", "Inactive", 0.0, {"train": 0, "labelled": 0, "unlabelled": 260, "selected": 0})
    documents = study(tmp_path, {"name": "LowerBound"}, {"west": "All", "east": "None"})
    model_card = card(documents, history(parts(counted("west", 1.0), idle)))
    assert problems(model_card)["LabelsMissing"].sentence.startswith(
        "The images of east have no labels, and nobody learns from them"
    )
    assert model_card.silos[1].samples["unlabelled"] == 260
    mixed = counted("east", train=10, labelled=10, unlabelled=250, selected=0)
    documents = study(tmp_path, FEDAVG, {"west": "All", "east": "Partial"})
    finding = problems(card(documents, history(parts(counted("west"), mixed))))["LabelsMissing"]
    assert finding.sentence.startswith("Images of east have no labels")
    semi = study(tmp_path, {"name": "FedAvgSemi"}, {"west": "All", "east": "None"})
    assert "LabelsMissing" not in problems(card(semi, history(weighed({"east": 200}))))
    pseudo_labelled = study(tmp_path, {"name": "MomentsHead"}, {"west": "All", "east": "None"})
    assert card(pseudo_labelled, history(parts(counted("west"), idle))).unlabelled == "Used"


def test_a_silo_that_missed_rounds_is_named_also_where_it_was_not_asked(tmp_path: Path) -> None:
    late = counted("east", 0.0, "Late")
    records = history(BOTH, parts(counted("west", 1.0), late), parts(counted("west", 1.0)), BOTH)
    model_card = card(study(tmp_path, FEDAVG, TWO), records)
    assert [silo.missed for silo in model_card.silos] == [0, 2]
    assert problems(model_card)["RoundsMissed"].sentence == "Rounds were committed without a silo: east missed 2 of 4."
    drawn = card(study(tmp_path, FEDAVG, TWO, silosPerRound=1), records)
    assert [silo.missed for silo in drawn.silos] == [0, 1], "a silo that was not drawn missed nothing"
    taken_out = history(BOTH, parts(counted("west", 1.0), counted("east", 0.0, "Removed")), parts(counted("west", 1.0)))
    assert "RoundsMissed" not in problems(card(study(tmp_path, FEDAVG, TWO), taken_out))
    waiting = card(study(tmp_path, {"name": "FedAsync"}, TWO, mode="Asynchronous"), history(parts(counted("west"))))
    assert [silo.missed for silo in waiting.silos] == [None, None]


def test_patients_that_were_not_compared_are_said_only_where_that_is_known(tmp_path: Path) -> None:
    documents = study(tmp_path, FEDAVG, TWO)
    finding = problems(card(documents, history(BOTH), groups=("", "")))["PatientsNotCompared"]
    assert finding.sentence.startswith("Patients were not compared, since no table of the scored images names any")
    named = card(documents, history(BOTH), groups=("patient-1", "patient-1", "patient-2"))
    assert named.scored_patients == 2 and problems(named) == {}


def test_the_gain_over_each_site_alone_and_over_the_labels_alone(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH)).model_copy(
        update={
            "sites_alone": {"west": {"balanced_accuracy": 0.8375}, "east": {"balanced_accuracy": 0.9375}},
            "labels_alone": {"balanced_accuracy": 0.9275},
        }
    )
    assert [str(finding) for finding in judge(model_card)] == [
        "The federation reaches a balanced accuracy of 0.938 on 160 test images: 10.0 points above west alone (0.838), "
        "level with east alone (0.938) and 1.0 point above the labels alone (0.927)."
    ]


def test_a_federation_below_the_labels_alone_or_a_site_alone_is_told_so(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH))
    below = problems(model_card.model_copy(update={"labels_alone": {"balanced_accuracy": 0.9695, "loss": 0.1}}))
    assert below["BelowLabelsAlone"].sentence.startswith("The federation is 3.2 points below the labels alone")
    below = problems(
        model_card.model_copy(update={"sites_alone": {"west": {"balanced_accuracy": 0.97}, "east": {"loss": 1.0}}})
    )
    assert below["BelowSiteAlone"].sentence == "The federation is below what west reaches alone."


def test_a_model_that_only_the_silos_scored_is_told_so(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH, validation=[0.75]), None)
    assert judge(model_card)[0] == Finding(
        "NotScored",
        "The server scored no model, so nobody knows what the federation gained; on images that the silos keep from training "
        "it has a balanced accuracy of 0.750.",
        f"{PAGE}#not-scored",
    )


def test_a_round_that_was_not_scored_has_no_validation_score(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH, BOTH, validation=[0.75]), best=1)
    assert (model_card.best.validation, model_card.final.validation) == ({"balanced_accuracy": 0.75, "loss": 1.0}, {})
    assert problems(model_card) == {}


def test_a_card_of_an_earlier_version_is_judged_by_what_it_has(tmp_path: Path) -> None:
    model_card = card(study(tmp_path, FEDAVG, TWO), history(BOTH, BOTH))
    values = model_card.model_dump(mode="json", by_alias=True)
    for name in ("unlabelled", "labelledShare", "scoredPatients", "sitesAlone"):
        del values[name]
    for model in ("final", "best"):
        del values[model]["validation"]
    for silo in values["silos"]:
        del silo["missed"], silo["lastWeight"]
    old = ModelCard.model_validate_json(json.dumps(values))
    assert problems(old) == {} and "| west | All | 2 |" in markdown(old)
    bad = scores([0.9] * 160, TRUTH)
    best = replace_round(old, 1, GOOD)
    assert problems(best.model_copy(update={"final": replace_assessment(old.final, bad)})).keys() == {
        "OneClass",
        "BestRoundBefore",
    }


def replace_assessment(model: TrainedModel, scored: Assessment) -> TrainedModel:
    return model.model_copy(update={"assessment": scored})


def replace_round(model_card: ModelCard, number: int, scored: Assessment) -> ModelCard:
    best = model_card.best.model_copy(update={"round": number, "assessment": scored})
    return model_card.model_copy(update={"best": best})


def test_the_card_begins_with_the_verdict_and_names_stay_text(tmp_path: Path) -> None:
    late = parts(counted("west", 1.0), counted("east", 0.0, "Late"))
    model_card = card(study(tmp_path, FEDAVG, TWO), history(late))
    lines = markdown(model_card).split("\n\n")
    assert lines[1].startswith("**The federation reaches a balanced accuracy of 0.938 on 160 test images")
    assert (
        lines[2]
        == "- Rounds were committed without a silo: east missed 1 of 1. (`docs/reading-a-result.md#rounds-without-a-silo`)"
    )
    hostile = model_card.model_copy(
        update={"silos": tuple(s.model_copy(update={"name": "<b>x</b>"}) for s in model_card.silos)}
    )
    assert "<b>" not in verdict(hostile)


def test_many_silos_are_named_and_counted(tmp_path: Path) -> None:
    names = [f"site-{number}" for number in range(9)]
    late = tuple(counted(name, 0.0, "Late") for name in names)
    model_card = card(study(tmp_path, FEDAVG, dict.fromkeys(names, "All")), history(late))
    assert problems(model_card)["RoundsMissed"].sentence.endswith("site-4 missed 1 of 1 and 4 more.")


def test_every_page_that_a_sentence_names_is_there() -> None:
    source = (Path(__file__).parents[3] / "core/anchorage/api/verdict.py").read_text()
    named = {line.split("{PAGE}#")[1].split('"')[0] for line in source.splitlines() if "{PAGE}#" in line}
    headings = [
        line.lstrip("# ") for line in (DOCS / "reading-a-result.md").read_text().splitlines() if line.startswith("#")
    ]
    anchors = {
        "".join(c for c in heading.lower() if c.isalnum() or c in " -").replace(" ", "-") for heading in headings
    }
    assert named and named <= anchors
