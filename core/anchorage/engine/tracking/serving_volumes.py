"""The code of a registered model of volumes, which MLflow runs where Anchorage is installed with the extras ``learning`` and ``clinical``: reading,
resampling and sliding over volumes are too much to lie beside a model.
"""

import base64
import binascii
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from anchorage.api.inference import read_inference
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.grids import MOST_VOLUME_BYTES
from anchorage.learning.data.nifti import write_classes
from anchorage.learning.data.sources import Channels
from anchorage.learning.inference import ImageModel, read_weights
from anchorage.learning.volume_prediction import predict_volume

IMAGE = "image"
"""The column of volumes."""


class VolumeModel(PythonModel):
    """Says of volumes how many millilitres each class has, and where."""

    def load_context(self, context: Any) -> None:
        """Read the model."""
        described = read_inference(Path(context.artifacts["description"]))
        _, weights = described.choose(best=described.final is None)
        self._model = ImageModel(described, read_weights(Path(context.artifacts["weights"]).parent, weights).arrays())

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """Return a DataFrame with a row per volume: ``millilitres`` of each class but the background, and ``mask``, a NIfTI file of classes
        (``.nii.gz``) on the volume's own grid as base64 text.

        Parameters
        ----------
        context : PythonModelContext
            MLflow's.
        model_input : DataFrame
            In the column ``image`` one volume a row: the content of a NIfTI file as bytes or as base64 text, or a `pathlib.Path`, which no remote
            caller can send; or a list of such, a file for each channel in the order of the model's.
        params : dict, optional
            There are none.

        Raises
        ------
        MlflowException
            INVALID_PARAMETER_VALUE: a volume cannot be used; it is named by its row.
        """
        return pd.DataFrame([self._predict(row, image) for row, image in enumerate(model_input[IMAGE])])

    def _predict(self, row: int, image: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="anchorage-volume-") as folder:
            try:
                source = self._source(image, Path(folder))
                segmentation = predict_volume(self._model, source)
            except (RefusedImageError, ValueError) as error:
                message = f"the volume in row {row} cannot be used: {error}"
                raise MlflowException(message, error_code=INVALID_PARAMETER_VALUE) from error
            mask = Path(folder) / "mask.nii.gz"
            write_classes(mask, segmentation.classes, segmentation.grid)
            names = self._model.described.outputs
            volumes_ml = dict(zip(names[1:], segmentation.millilitres[1:], strict=True))
            return {"millilitres": volumes_ml, "mask": base64.b64encode(mask.read_bytes()).decode()}

    def _source(self, image: Any, folder: Path) -> Path | Channels:
        """Return the file of a volume, or those of its channels; contents are written into the folder."""
        if not isinstance(image, list | tuple):
            return _file_of(image, folder / "volume.nii.gz")
        if len(image) != self._model.described.channels:
            raise ValueError(
                f"found {len(image)} files, allowed are {self._model.described.channels}, one for each channel"
            )
        return Channels(tuple(_file_of(each, folder / f"volume-{row}.nii.gz") for row, each in enumerate(image)))


def _file_of(image: Any, file: Path) -> Path:
    """Return a file that was named, or write the content of a NIfTI file, bytes or base64 text."""
    if isinstance(image, Path):
        return image
    if isinstance(image, str):
        if len(image) > MOST_VOLUME_BYTES * 4 // 3:
            raise ValueError(f"more than {MOST_VOLUME_BYTES // 2**20} MiB")
        try:
            image = base64.b64decode("".join(image.split()), validate=True)
        except binascii.Error as error:
            raise ValueError("the text is not base64 of a NIfTI file; give a path as a pathlib.Path") from error
    if not isinstance(image, bytes | bytearray):
        raise ValueError(f"found {type(image).__name__}, allowed are bytes, base64 text, or a pathlib.Path")
    file.write_bytes(image)
    return file


set_model(VolumeModel())
