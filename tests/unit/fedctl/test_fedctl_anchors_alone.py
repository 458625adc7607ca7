"""What a federation's server reaches with its anchors alone, where the classifier is computed and not trained."""

from pathlib import Path

import pytest

from anchorage.methods import PRESETS, validate_study
from anchorage.methods.snippet import snippet
from anchorage.simulation.run import Simulation
from fedctl.anchors_alone import measure

pytest.importorskip("torch")
pytest.importorskip("sklearn")


def test_a_classifier_that_guesses_is_the_first_rounds_where_silos_have_no_labels(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(snippet(PRESETS["SharesHead"]))
    simulation = Simulation(
        validate_study(file, ("spec.rounds=1", "silo.spec.labels=None")), tmp_path, tmp_path / "state"
    )
    simulation.play()
    last = simulation.store.history()[-1]
    expected = last.test["final"]
    assert expected["accuracy"] > 0.3, "a tenth is chance"
    assert measure(file, tmp_path) == pytest.approx(expected)


def test_components_are_found_of_the_anchors(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(snippet(PRESETS["PrincipalComponents"]))
    assert measure(file, tmp_path)["accuracy"] > 0.3
