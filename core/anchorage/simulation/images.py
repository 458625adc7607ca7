"""Images of thousands of silos: every pool is listed and divided once, every section decoded once, and the pixels lie in mapped files."""

from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.model import ModelDescription
from anchorage.api.piece import expect
from anchorage.engine.store.durable import storage_errors
from anchorage.learning.data import Choice, ImageSet, Pools, assemble, decode_listing
from anchorage.learning.data.fingerprints import Fingerprint
from anchorage.learning.data.report import Findings
from anchorage.learning.data.sources import Channels, Series, Source, file_and_frame
from anchorage.learning.data.stored_pictures import Pictures
from anchorage.learning.model_hooks import TaskHooks

FINGERPRINTS = "images"


class DecodedImages:
    """Pixels of simulations one after another in this process: what an earlier one decoded, and is as it was on disk, is not decoded again.

    Pixels are written to files without names and mapped: the system drops pages that nobody uses. Volumes lie in files with names.

    Parameters
    ----------
    volumes : Path, optional
        Folder of volumes, which outlives each simulation; else they lie in the folder of the simulation that reads them.
    most : int
        Bytes of pixels that are kept; those that were not used for longest go.
    """

    def __init__(self, volumes: Path | None = None, most: int = 4 << 30) -> None:
        self._volumes, self._most, self._nbytes = volumes, most, 0
        self._cache: OrderedDict[Hashable, tuple[Pictures, Findings]] = OrderedDict()

    def of(self, choice: Choice, model: ModelDescription, folder: Path) -> tuple[Pictures, Findings]:
        """Return what `anchorage.learning.data.decode_listing` does, mapped to a file in this folder, that of a simulation.

        Raises
        ------
        AnchorageError
            As `anchorage.learning.data.read`.
        """
        listing = choice.listing
        bad = tuple(sorted(listing.bad.items()))
        shown = model.model_dump_json(include={"image_size", "channels", "volume", "intensity"})
        mask_values = b"" if listing.masks is None else listing.masks.table.tobytes()
        key = (
            *map(_state_of, listing.sources),
            listing.ids,
            bad,
            listing.stratum_names,
            listing.without_masks,
            *((map(_state_of, listing.masks.files)) if listing.masks is not None else ()),
            mask_values,
            model.fitting,
            shown,
        )
        if key not in self._cache:
            # a set of volumes has one folder for each way to read it: files of another way are removed from it
            name = blake3(shown.encode() + mask_values).hexdigest(16)
            place = folder / "volumes" if self._volumes is None else self._volumes / name
            pixels, findings = decode_listing(choice.labelled_listing(), model, place)
            self._cache[key] = _map(pixels, folder) if isinstance(pixels, np.ndarray) else pixels, findings
            self._nbytes += pixels.nbytes
            while self._nbytes > self._most and len(self._cache) > 1:
                self._nbytes -= self._cache.popitem(last=False)[1][0].nbytes
        self._cache.move_to_end(key)
        return self._cache[key]


def _state_of(source: Source) -> Hashable:
    """Return what changes when an image does: of a file its path, size and time; pixels in memory themselves."""
    if source is None or isinstance(source, np.ndarray):
        return source if source is None else source.tobytes()
    if isinstance(source, Series | Channels):
        return tuple(map(_state_of, source.files if isinstance(source, Series) else source.parts))
    file, frame = file_and_frame(source)
    try:
        file_status = Path(file or "").stat()
    except OSError:  # which decoding names
        return str(source)
    return str(file), frame, file_status.st_size, file_status.st_mtime_ns, file_status.st_ino


def _map(pixels: NDArray[Any], folder: Path) -> NDArray[Any]:
    """Write pixels to a file and return them mapped: writable, as torch wants them, but never written."""
    if not pixels.size:
        return pixels  # Nothing could be read, and nothing cannot be mapped.
    with TemporaryFile(dir=folder) as file:
        pixels.tofile(file)
        file.flush()
        return np.memmap(file, pixels.dtype, "c", shape=pixels.shape)


class SharedImages:
    """The images that sections of documents mean, at the model's size; memory does not grow with the number of silos (`DecodedImages`).

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
    embeddings : Path, optional
        Where a frozen encoder's embeddings are kept for other runs.
    before : DecodedImages, optional
        What other simulations of this process decoded.
    """

    def __init__(
        self,
        data_root: Path,
        model: ModelDescription,
        seed: int,
        folder: Path,
        embeddings: Path | None = None,
        before: DecodedImages | None = None,
    ) -> None:
        self.embeddings, self._decoded = embeddings, before or DecodedImages()
        self._root, self._model, self._seed, self._folder = data_root, model, seed, folder
        self._pools, self._task = Pools(volumes=model.volume is not None), expect(model.task, TaskHooks)
        self._sets: dict[tuple[str, bool], tuple[ImageSet, NDArray[np.int64]]] = {}

    def count(self, section: DataSection, *, labelled: bool = True) -> int:
        """Return how many images a section lists, without opening one. `labelled`: as in `Pools.choose`.

        Raises
        ------
        AnchorageError
            The section means none (12xx).
        """
        return len(self._pools.choose(section, self._root, self._task, self._seed, labelled).listing)

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
            choice = self._pools.choose(section, self._root, self._task, self._seed, labelled)
            images, _, truth = assemble(choice, section, *self._decoded.of(choice, self._model, self._folder))
            self._recognise(section, images)
            self._sets[key] = images, truth
        return self._sets[key]

    def _recognise(self, section: DataSection, images: ImageSet) -> None:
        """Compare images with those that a process before this one read, unless the section allows others, and keep what they are."""
        name = blake3(section.model_dump_json(exclude={"on_change"}).encode()).hexdigest(16)
        file, fingerprint = self._folder / FINGERPRINTS / f"{name}.json", Fingerprint.of(images, bytes(32))
        refused = getattr(section, "on_change", "Refuse") == "Refuse"
        if refused and file.exists():
            fingerprint.compare(file, "the images", remedy="restore them, or name another --workdir")
            return
        with storage_errors("keep what the images are", file):
            file.parent.mkdir(exist_ok=True)
            fingerprint.keep(file)
