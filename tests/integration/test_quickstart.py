"""docs/quickstart-your-images.md as printed: from folders of three hospitals to a served model."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn_hospitals import CELLS, SHAPES, Hospitals
from printed_pages import blocks, environment_in, serving, sh, without_anchorage_in

PAGE = "quickstart-your-images.md"


def spoken_of(hospitals: Hospitals) -> Callable[[str], str]:
    """Put a set's names of classes in the place of the page's."""
    names = dict(zip(SHAPES.classes + SHAPES.local, hospitals.classes + hospitals.local, strict=True))
    return lambda script: re.sub("|".join(sorted(names, key=len, reverse=True)), lambda name: names[name[0]], script)


def fewer_rounds(file: Path) -> None:
    """Leave two fifths of the rounds: they are enough for these images, and the test waits for them."""
    text = file.read_text()
    for rounds, fewer in (("  rounds: 250\n", "  rounds: 100\n"), ("    rounds: 60\n", "    rounds: 24\n")):
        assert text.count(rounds) == 1
        text = text.replace(rounds, fewer)
    file.write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize("hospitals", [SHAPES, CELLS], ids=["grey shapes", "cells in colour"])
def test_the_page_as_it_is_printed(hospitals: Hospitals, place: Path) -> None:
    hospitals.lay_out(place / "data")
    environment, spoken = environment_in(place), spoken_of(hospitals)

    def printed(heading: str) -> list[str]:
        return [spoken(script) for script in blocks(PAGE, heading, "sh")]

    (init,) = printed("Write the federation file")
    assert "shapes.yaml: valid" in sh(init, place, environment)
    fewer_rounds(place / "shapes.yaml")
    (check,) = printed("Look at the images")
    table = sh(check, place, environment)
    for hospital in ("hospital-b", "hospital-c"):
        counted = [set(line.split(", ")) for line in re.findall(f"^{hospital}: (.*)$", table, re.MULTILINE)]
        assert {f"{name} 30" for name in hospitals.classes} in counted
    assert hospitals is not SHAPES or "0-4095 (90)" in table, "the window of 12-bit images"
    (train,) = printed("Train")
    output = sh(train, place, environment)
    assert "ON THE TEST IMAGES" in output and re.search("registered    shapes version [12]\n", output)
    predict, serve, ask = printed("Use the model")
    answer = json.loads(sh(f"{predict.rstrip()} -o json", place, environment))
    assert answer["model"]["role"] == "best" and answer["model"]["score"]["images"] == "validation images"
    predicted = answer["predictions"]
    right = sum(each["class"] == hospitals.classes[2] for each in predicted)
    assert len(predicted) == 20 and right > 10, "a third would be chance"
    hidden = without_anchorage_in(place, environment)
    with serving(serve, "5001", place, hidden) as port:
        (served,) = json.loads(sh(ask.replace("5001", port), place, hidden))["predictions"]
    assert set(served["probabilities"]) == set(hospitals.classes)
    (same,) = (each["probabilities"] for each in predicted if f" {each['image']})" in ask)
    assert served["probabilities"] == pytest.approx(same, abs=1e-3), "MLflow's best model is that of fedctl predict"
