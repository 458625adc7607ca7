"""docs/quickstart-your-images.md as printed: from folders of three hospitals to a served model."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from printed_pages import blocks, environment_in, serving, sh, without_anchorage_in

PAGE = "quickstart-your-images.md"
CLASSES = ("circle", "square", "cross")
SIDE = 32

pytestmark = pytest.mark.slow


def draw(kind: str, seed: int) -> NDArray[np.uint8]:
    """A bright shape of any place and size on a dark ground, with noise."""
    rng = np.random.default_rng(seed)
    image = Image.new("L", (SIDE, SIDE), int(rng.integers(20, 70)))
    pen, half = ImageDraw.Draw(image), int(SIDE * rng.uniform(0.22, 0.36))
    x, y = (SIDE // 2 + int(rng.integers(-3, 4)) for _ in "xy")
    shade, width = int(rng.integers(140, 240)), max(2, half // 3)
    if kind == "circle":
        pen.ellipse((x - half, y - half, x + half, y + half), fill=shade)
    elif kind == "square":
        pen.rectangle((x - half, y - half, x + half, y + half), fill=shade)
    else:
        pen.rectangle((x - width, y - half, x + width, y + half), fill=shade)
        pen.rectangle((x - half, y - width, x + half, y + width), fill=shade)
    return (np.asarray(image) + rng.normal(0, 8, (SIDE, SIDE))).clip(0, 255).astype(np.uint8)


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    deep = path.suffix == ".tif"
    Image.fromarray(pixels.astype(np.uint16) * 16 if deep else pixels).save(path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The page's folders."""
    data, seeds = tmp_path / "data", iter(range(10_000))
    for part, each in (("anchors", 8), ("validation", 12), ("test", 20)):
        for kind in CLASSES:
            for number in range(each):
                save(data / "server" / part / kind / f"{kind}{number:03d}.png", draw(kind, next(seeds)))
    rows = []
    for number in range(90):
        kind = CLASSES[number % 3]
        save(data / "hospital-a" / "scans" / f"a{number:03d}.jpg", draw(kind, next(seeds)))
        folder = {"circle": "Circles", "square": "Squares", "cross": "Crosses"}[kind]
        save(data / "hospital-b" / folder / f"b{number:03d}.tif", draw(kind, next(seeds)))
        save(data / "hospital-c" / "img" / f"c{number:03d}.png", draw(kind, next(seeds)))
        rows.append((f"c{number:03d}.png", kind.upper(), f"p{number // 2}"))
    with (data / "hospital-c" / "labels.csv").open("w", newline="") as text:
        csv.writer(text).writerows([("image", "label", "patient_id"), *rows])
    return tmp_path


def test_the_page_as_it_is_printed(place: Path) -> None:
    environment = environment_in(place)
    (init,) = blocks(PAGE, "Write the federation file", "sh")
    assert "shapes.yaml: valid" in sh(init, place, environment)
    (check,) = blocks(PAGE, "Look at the images", "sh")
    table = sh(check, place, environment)
    assert (
        "hospital-b: circle 30, square 30, cross 30" in table or "hospital-b: circle 30, cross 30, square 30" in table
    )
    assert "0-4095 (90)" in table, "the window of 12-bit images"
    (train,) = blocks(PAGE, "Train", "sh")
    told = sh(train, place, environment)
    assert "ON THE TEST IMAGES" in told and "registered    shapes version 1" in told
    predict, serve, ask = blocks(PAGE, "Use the model", "sh")
    predicted = json.loads(sh(f"{predict.rstrip()} -o json", place, environment))["predictions"]
    right = sum(each["class"] == "cross" for each in predicted)
    assert len(predicted) == 20 and right > 10, "a third would be chance"
    hidden = without_anchorage_in(place, environment)
    with serving(serve, "5001", place, hidden) as port:
        (answer,) = json.loads(sh(ask.replace("5001", port), place, hidden))["predictions"]
    assert set(answer["probabilities"]) == set(CLASSES) and answer["class"] in CLASSES
