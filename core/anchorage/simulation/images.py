"""Images of thousands of silos: every pool is listed and divided once, every section decoded once, and the pixels lie in mapped files."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.model import ModelDescription
from anchorage.engine.store.durable import storage_errors
from anchorage.learning.data import ImageSet, Pools, read_chosen
from anchorage.learning.data.fingerprints import Fingerprint

FINGERPRINTS = "images"


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
        Where the files lie, which go with this process, and ``images``: what the images were when they were read first.
    """

    def __init__(self, data_root: Path, model: ModelDescription, seed: int, folder: Path) -> None:
        self._root, self._model, self._seed, self._folder = data_root, model, seed, folder
        self._pools = Pools()
        self._sets: dict[tuple[str, bool], tuple[ImageSet, NDArray[np.int64]]] = {}

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
            They cannot be used, or are others than when training began (12xx).
        """
        return self._read(section, labelled)[0]

    def truth(self, section: DataSection, *, labelled: bool = True) -> NDArray[np.int64]:
        """Return the classes of a section's images as far as anybody knows them, int64 [n], -1 where nobody does: for who judges, not for who
        trains.
        """
        return self._read(section, labelled)[1]

    def _read(self, section: DataSection, labelled: bool) -> tuple[ImageSet, NDArray[np.int64]]:
        key = section.model_dump_json(), labelled
        if key not in self._sets:
            choice = self._pools.choose(section, self._root, self._model.classes, self._seed, labelled)
            images, _, truth = read_chosen(choice, section, self._model)
            self._recognise(section, images)
            self._sets[key] = replace(images, images=self._mapped(images.images)), truth
        return self._sets[key]

    def _recognise(self, section: DataSection, images: ImageSet) -> None:
        """Compare images with those that a process before this one read, unless the section allows others, and keep what they are."""
        name = blake3(section.model_dump_json(exclude={"on_change"}).encode()).hexdigest(16)
        file, found = self._folder / FINGERPRINTS / f"{name}.json", Fingerprint.of(images, bytes(32))
        refused = getattr(section, "on_change", "Refuse") == "Refuse"
        if refused and file.exists():
            found.compare(file, "the images", remedy="restore them, or name another --workdir")
            return
        with storage_errors("keep what the images are", file):
            file.parent.mkdir(exist_ok=True)
            found.keep(file)

    def _mapped(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Write pixels to a file and return them mapped: writable, as torch wants them, but never written."""
        with TemporaryFile(dir=self._folder) as file:
            pixels.tofile(file)
            file.flush()
            return np.memmap(file, np.uint8, "c", shape=pixels.shape)
