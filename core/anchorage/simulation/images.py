"""Images of thousands of silos: every pool is listed and divided once, every section decoded once, and the pixels lie in mapped files."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.model import ModelDescription
from anchorage.learning.data import ImageSet, Pools, read


class SharedImages:
    """The images that sections of documents mean, at the model's size.

    Pixels are written to a file without a name and mapped: the system drops pages that nobody uses, so memory does not grow with the
    number of silos.

    Parameters
    ----------
    data_root : Path
        Folder that holds the claims.
    model : ModelDescription
        Size, channels and classes.
    seed : int
        The run's seed.
    folder : Path
        Where the files lie; they go with this process.
    """

    def __init__(self, data_root: Path, model: ModelDescription, seed: int, folder: Path) -> None:
        self._root, self._model, self._seed, self._folder = data_root, model, seed, folder
        self._pools = Pools()
        self._sets: dict[tuple[str, bool], ImageSet] = {}

    def count(self, section: DataSection, *, labelled: bool = True) -> int:
        """Return how many images a section lists, without opening one. `labelled`: as in `Pools.choose`.

        Raises
        ------
        AnchorageError
            The section means none (12xx).
        """
        return len(self._pools.choose(section, self._root, self._model.classes, self._seed, labelled).listing)

    def of(self, section: DataSection, *, labelled: bool = True) -> ImageSet:
        """Return a section's images; they are decoded when they are asked for first. `labelled`: as in `Pools.choose`.

        Raises
        ------
        AnchorageError
            They cannot be used (12xx).
        """
        key = section.model_dump_json(), labelled
        if key not in self._sets:
            images, _ = read(section, self._root, self._model, self._seed, labelled=labelled, pools=self._pools)
            pixels = self._mapped(images.images)
            self._sets[key] = replace(images, images=pixels)
        return self._sets[key]

    def _mapped(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Write pixels to a file and return them mapped: writable, as torch wants them, but never written."""
        with TemporaryFile(dir=self._folder) as file:
            pixels.tofile(file)
            file.flush()
            return np.memmap(file, np.uint8, "c", shape=pixels.shape)
