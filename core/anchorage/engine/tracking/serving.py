"""The code of a registered model: MLflow runs this file wherever the model is used, with Anchorage or without.

Beside it lie, as artifacts, a program of `torch.export` (pixels in, probabilities out), ``model.json``, and the files with which training
decodes images and shows their values, so that both see the same pixels but for levels beyond 256, which a program does not take. It imports
nothing of Anchorage.
"""

import base64
import binascii
import importlib.util
import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

BATCH = 64
"""Images per pass."""
IMAGE = "image"
"""The column of images."""


class ImageModel(PythonModel):
    """Says of images what the model's task makes of them, such as their class with the probability of each class."""

    def load_context(self, context: Any) -> None:
        """Read the description; the program is read when it is first asked."""
        self._artifacts = dict(context.artifacts)
        self._described = json.loads(Path(self._artifacts["description"]).read_text(encoding="utf-8"))
        self._decoding = _module(Path(self._artifacts["decoding"]), "decoding")
        self._intensity = _module(Path(self._artifacts["intensity"]), "intensity")
        self._program: Any = None

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """Return a DataFrame with a row per image: ``probabilities`` by the outputs' names, with ``class`` where one is true; or ``values``; or of a
        segmentation ``area``, the share of the image that each class but the background covers, and ``mask``, a PNG of classes as base64 text.

        Parameters
        ----------
        context : PythonModelContext
            MLflow's.
        model_input : DataFrame
            In the column ``image`` one image a row, of any size: the content of an image file as bytes or as base64 text; a `pathlib.Path`,
            which no remote caller can send; or an array (nested lists) [h, w], [h, w, c] or [c, h, w] of numbers 0 to 255, c of 1, 3 or 4.
        params : dict, optional
            There are none.

        Raises
        ------
        MlflowException
            INVALID_PARAMETER_VALUE: an image cannot be used; it is named by its row.
        """
        import torch

        if self._program is None:
            self._program = torch.export.load(self._artifacts["program"]).module()
        if self._outputs()["kind"] == "maps":
            return self._masks(_images(model_input[IMAGE]))
        images, outputs, rows = _images(model_input[IMAGE]), self._outputs(), []
        for start in range(0, len(images), BATCH):
            pixels = [self._pixels(start + row, image) for row, image in enumerate(images[start : start + BATCH])]
            with torch.no_grad():
                rows += self._program(torch.from_numpy(np.stack(pixels))).tolist()
        probability_rows = [dict(zip(outputs["names"], row, strict=True)) for row in rows]
        if outputs["kind"] == "values":
            return pd.DataFrame({"values": probability_rows})
        classes = (
            {"class": [max(row, key=row.__getitem__) for row in probability_rows]}
            if outputs["kind"] == "exclusive"
            else {}
        )
        return pd.DataFrame({**classes, "probabilities": probability_rows})

    def _masks(self, images: list[Any]) -> pd.DataFrame:
        """Return the most probable class of each pixel of images, one after another: maps are large."""
        import torch
        from PIL import Image

        names, mask_rows = self._outputs()["names"], []
        for row, image in enumerate(images):
            decoded = self._decode(row, image)
            pixels = torch.from_numpy(np.stack([self._decoding.with_levels_of(decoded.pixels, np.uint8)]))
            with torch.no_grad():
                mask = self._program(pixels).argmax(1)[0].to(torch.uint8).numpy()
            mask = self._decoding.unfit_mask(mask, decoded.upright, self._fit())
            content = io.BytesIO()
            Image.fromarray(mask).save(content, "png")
            shares = np.bincount(mask.ravel(), minlength=len(names)) / mask.size
            area = {name: float(share) for name, share in zip(names[1:], shares[1:], strict=True)}
            mask_rows.append({"area": area, "mask": base64.b64encode(content.getvalue()).decode()})
        return pd.DataFrame(mask_rows)

    def _fit(self) -> str:
        """Return how images become square."""
        return "Pad" if self._described.get("resizing") == "containAndPad" else "Crop"

    def _outputs(self) -> dict[str, Any]:
        """Return names and kind of the outputs; a description of an earlier version has classes alone."""
        described = self._described
        outputs: dict[str, Any] = described.get("outputs") or {"kind": "exclusive", "names": described["classes"]}
        return outputs

    def _pixels(self, row: int, image: Any) -> Any:
        """Return pixels uint8 [channels, size, size]."""
        return self._decoding.with_levels_of(self._decode(row, image).pixels, np.uint8)

    def _decode(self, row: int, image: Any) -> Any:
        """Return an image as it was decoded."""
        described, decoding = self._described, self._decoding
        try:
            shades = self._intensity.intensity_of(described.get("intensity"))
        except KeyError as error:
            raise MlflowException(
                f"the intensity {error} is of another package; use fedctl predict, where that is installed",
                error_code=INVALID_PARAMETER_VALUE,
            ) from error
        wanted = decoding.Input(described["imageSize"], described["channels"], shades, self._fit())
        try:
            if isinstance(image, Path):
                image = decoding.read_content(image)
            elif isinstance(image, str):
                image = _decode_base64(image, decoding.MOST_BYTES)
            if isinstance(image, bytes | bytearray):
                return decoding.decode_bytes(bytes(image), wanted)
            return decoding.decode_array(_array(image), wanted)
        except (decoding.RefusedImageError, ValueError) as error:
            message = f"the image in row {row} cannot be used: {error}"
            raise MlflowException(message, error_code=INVALID_PARAMETER_VALUE) from error


def _images(column: Iterable[Any]) -> list[Any]:
    """Return the images of a column; MLflow puts a list of texts into one cell where a request has ``{"inputs": {"image": [...]}}``."""
    listed = [cell if isinstance(cell, list) and cell and isinstance(cell[0], str) else [cell] for cell in column]
    return [image for cell in listed for image in cell]


def _decode_base64(text: str, most: int) -> bytes:
    if len(text) > most * 4 // 3 + 4:
        raise ValueError(f"more than {most // 2**20} MiB")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError("the text is not base64 of an image file; give a path as a pathlib.Path") from error


def _array(image: Any) -> Any:
    """Return an array as Pillow takes it: [h, w], [h, w, 3] or [h, w, 4], uint8, or uint16 where it was."""
    try:
        array = np.asarray(image)
    except ValueError as error:
        raise ValueError("its rows differ in length") from error
    if array.dtype.kind not in "uif" or array.ndim not in (2, 3):
        raise ValueError(
            f"found {type(image).__name__}, allowed are bytes, base64 text, a pathlib.Path, or an array of numbers"
        )
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.dtype != np.uint16:
        if array.size and not (array.min() >= 0 and array.max() <= 255):
            raise ValueError("numbers of an array go from 0 to 255 (of uint16, to 65535)")
        array = np.rint(array).astype(np.uint8)
    return np.ascontiguousarray(array)


def _module(path: Path, name: str) -> ModuleType:
    """Return a Python file as a module of its own, so that models of several versions can be used in one process."""
    spec = importlib.util.spec_from_file_location(f"anchorage_image_{name}", path)
    assert spec is not None and spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


set_model(ImageModel())
