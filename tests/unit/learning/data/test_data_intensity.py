"""Which values become black and white is part of the model (spec.model.intensity)."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from read_sections import model_of

from anchorage.api.inference import FORMAT, FORMAT_WITH_INTENSITY, describe, parse_inference
from anchorage.api.model import ModelDescription
from anchorage.learning.data.decoders import input_of
from anchorage.learning.data.decoding import Input, Measured, Picture, decode_bytes, fit_picture
from anchorage.learning.data.intensity import intensity_of

VALUES = np.arange(-50, 14, dtype=np.float32).reshape(8, 8)


def shown(intensity, values=VALUES, **measured):
    """Return shades from 0 to 1 of values without a range."""
    picture = Picture(values, (8, 8), "int16", measured=Measured(-np.inf, np.inf, **measured))
    return fit_picture(picture, Input(8, 1, intensity_of(intensity)), b"", "x").pixels[0] / 65535


def test_a_window_is_the_same_for_every_image():
    expected = ((VALUES + 40) / 50).clip(0, 1)
    np.testing.assert_allclose(shown({"window": {"low": "-40", "high": "10"}}), expected, atol=1e-5)


def test_percentiles_are_those_of_the_image_without_padding():
    padding = np.zeros((8, 8), bool)
    padding[:4] = True
    values = np.where(padding, np.float32(-3000), VALUES)
    low, high = np.percentile(VALUES[4:], [10, 90])
    expected = np.where(padding, 0, ((VALUES - low) / (high - low)).clip(0, 1))
    shades = shown({"percentiles": {"low": "10", "high": "90"}}, values, padding=padding)
    np.testing.assert_allclose(shades, expected, atol=1e-5)


@pytest.mark.parametrize("over", ["All", "Foreground"])
def test_z_scores_have_the_mean_at_middle_grey_and_five_deviations_to_white(over):
    counted = VALUES if over == "All" else VALUES[VALUES.mean() < VALUES]
    expected = ((VALUES - counted.mean()) / counted.std() / 10 + 0.5).clip(0, 1)
    np.testing.assert_allclose(shown({"zScore": {"over": over}}), expected, atol=1e-4)


def test_equal_values_on_other_scales_have_equal_z_scores():
    one, other = shown({"zScore": {"over": "All"}}), shown({"zScore": {"over": "All"}}, VALUES * 4000 + 900_000)
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_pictures_of_other_formats_have_intensities_too():
    grey = np.arange(64, dtype=np.uint16).reshape(8, 8) * 40
    content = io.BytesIO()
    Image.fromarray(grey).save(content, "png")
    wanted = Input(8, 1, intensity_of({"window": {"low": "1000", "high": "2000"}}))
    decoded_image = decode_bytes(content.getvalue(), wanted)
    np.testing.assert_allclose(decoded_image.pixels[0] / 65535, ((grey - 1000.0) / 1000).clip(0, 1), atol=1e-4)
    assert decoded_image.white is None
    by_window = decode_bytes(content.getvalue(), Input(8, 1, intensity_of({"dicomWindow": {}})))
    np.testing.assert_array_equal(by_window.pixels, decode_bytes(content.getvalue(), Input(8, 1)).pixels)


def described(text):
    base = model_of(("a", "b")).model_dump(mode="json", by_alias=True, exclude_none=True)
    return ModelDescription.model_validate_json(
        json.dumps({**base, **({"intensity": json.loads(text)} if text else {})})
    )


@pytest.mark.parametrize(
    "text", [None, '{"window": {"low": "-57", "high": "164"}}', '{"zScore": {}}', '{"dicomWindow": {}}', '{"bits": {}}']
)
def test_models_carry_it_and_their_format_says_so(text):
    model = described(text)
    description = describe(model, "x", classifier_trained=True)
    assert description["format"] == (FORMAT_WITH_INTENSITY if text else FORMAT) and (
        "intensity" in description
    ) == bool(text)
    read = parse_inference(json.dumps(description).encode(), "model.json")
    assert read.intensity == model.intensity
    assert (input_of(read).intensity is None) == (text in (None, '{"bits": {}}'))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"window": {"low": "5", "high": "5"}}', "high must be the larger"),
        ('{"percentiles": {"low": "99", "high": "101"}}', "allowed are 0 to 100"),
        ('{"percentil": {}}', "percentiles"),
    ],
)
def test_mistakes_are_told(text, word):
    with pytest.raises(ValueError, match=word):
        described(text)
