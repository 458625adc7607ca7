"""Pitfalls of the methods reference, section 12 that a preset or a comparison could fall into; each test names its number."""

import re
from pathlib import Path

import pytest

from anchorage.methods.advice import advice_of
from anchorage.methods.registry import PRESETS
from anchorage.methods.variants import variants_of
from anchorage.pieces.input_mixing.pool import Pooled
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.helpers import Helpers
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.pieces.weighting.semianagg import SemiAnAgg
from fedctl.published import find_published, published_results

DOCS = Path(__file__).parents[3] / "docs"

EXPECTED_SENTENCES = {
    "validation": "validation",
    "similarity": "similarity",
    "counts": "class histogram",
    "label_counts": "class histogram",
    "mean_images": "mean images",
    "mean_labels": "class shares",
    "raw_images": "every labelled image",
    "raw_labels": "every labelled image",
    "embedding": "image of noise",
    "local_centroids": "cluster means",
    "steps": "how many steps",
    "control.*": "mean gradient",
    "uncertainty": "mean confidence",
    "guessed_counts": "class histogram",
    "class_means": "class means",
    "beside.moments.counts": "class histogram",
    "beside.moments.images": "number of a silo's images",
    "beside.moments.sum": "sum of its features",
    "beside.moments.products": "products of two features",
    "beside.moments.sums": "sums of its features",
    "beside.moments.seconds": "products of two features",
}
"""A word of what a preset says it reveals, for what travels up beside the model."""


def test_13_accuracy_is_not_called_robust_and_a_histogram_is_named() -> None:
    """Number 13 (and 19): micro-F1 is pooled accuracy, and the page says so; other metrics cost a confusion matrix."""
    weighed = [preset for preset in PRESETS.values() if isinstance(preset.slots.weighting, Dvw)]
    for preset in weighed:
        assert getattr(preset.slots.weighting, "metric", None) == "MicroF1"
        assert "with another metric the confusion matrix, so the class histogram" in preset.reveals_to_server
    assert PRESETS["DVW"] in weighed and "pooled accuracy" in advice_of(PRESETS["DVW"])
    assert {name for name, variant in variants_of("DVW").items() if "counts nothing" in variant.summary} == {
        "DVWGMean",
        "DVWMCC",
    }


def test_14_scaffold_takes_plain_steps() -> None:
    """Number 14: the preset has neither momentum nor decay nor clipping; what overrides may not set is refused (labelled_work)."""
    optimiser = PRESETS["SCAFFOLD"].slots.local.optimiser
    assert isinstance(optimiser, Sgd)
    assert [float(v) for v in (optimiser.momentum, optimiser.weight_decay, optimiser.clip_norm)] == [0, 0, 0]


def test_15_fedmatch_decays_nothing() -> None:
    """Number 15: neither part of FedMatch's weights, at no party; elsewhere decay is the method's choice."""
    split = [preset.slots for preset in PRESETS.values() if isinstance(preset.slots.pseudo_labels, Helpers)]
    assert {method.name for method in split} >= {"FedMatch", "FedMatchServer"}
    for method in split:
        trained = method.server_training
        optimisers = [method.local.optimiser, *([trained.optimiser] if isinstance(trained, Anchors) else [])]
        assert [float(optimiser.weight_decay) for optimiser in optimisers if isinstance(optimiser, Sgd)] == [0] * len(
            optimisers
        )


def test_19_what_is_sent_is_confessed() -> None:
    """Number 19: zeros, histograms, means of few and individual models are named where a method sends them."""
    for preset in PRESETS.values():
        server, silos = preset.reveals_to_server, preset.reveals_to_silos
        for array in preset.up:
            of_one = re.sub(r"^(beside\.moments\.)\w+\.", r"\1", array.name)  # what several recipes send is said once
            assert EXPECTED_SENTENCES[of_one] in server, (preset.name, array.name)
        for kind, word, expected in (
            (Dvw, "individual model", silos),
            (SemiAnAgg, "no confident image", server),
            (Pooled, "every silo", silos),
            (Helpers, "single silos' models", silos),
        ):
            if any(isinstance(piece, kind) for piece in preset.slots.pieces()):
                assert word in expected, (preset.name, kind)


def test_20_published_results_are_no_times() -> None:
    """Number 20: what stands beside ours is a quality, and one that was reached at a time says whose time it was."""
    results = published_results()
    assert {r.metric for r in results} == {"accuracy", "balanced_accuracy", "macro_auc", "macro_precision"}
    assert all(0 <= float(r.value) <= 1 for r in results if r.value)
    timed = [r for r in results if re.search(r"\d ?(s|min|h|hours|seconds)\b", r.setting)]
    assert timed == [r for r in results if r.reached_at] and len(timed) > 40
    assert all(str(r).endswith(f"(at {r.reached_at} of its machines)") for r in timed if r.value)
    lost = next(r for r in results if not r.value)
    assert find_published({"setting": lost.setting, "dataset": lost.dataset, "method": lost.method}) is None
    wanted = {"source": "Metis Table I", "setting": "Uniform IID; 10 GPU; at 200 rounds", "method": "SyncFedAvg"}
    published = find_published(wanted)
    assert published is not None and str(published) == "0.8295"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_20_no_page_has_times_of_others_in_a_table(page: Path) -> None:
    """Number 20: a column of published or papers' figures has no seconds, minutes or hours."""
    columns: list[int] | None = None  # of the table at hand, by its first line
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        cells = line.strip("|").split("|")
        if columns is None:
            columns = [i for i, cell in enumerate(cells) if re.search(r"publish|paper", cell, re.IGNORECASE)]
        figures = [cells[i] for i in columns if i < len(cells)]
        assert not any(re.search(r"\d ?(s|ms|min|h|hours|seconds|minutes)\b", figure) for figure in figures), line
