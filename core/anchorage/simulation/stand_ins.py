"""Noise that stands in for images that are not here, so that a federation can be rehearsed without them."""

from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from anchorage.api.data import DataSection, SiloData
from anchorage.api.federation import FederationSpec, Managed, Silo
from anchorage.api.model import ModelDescription
from anchorage.api.piece import expect
from anchorage.learning.data import ImageSet
from anchorage.learning.data.cases import Case
from anchorage.learning.data.grids import Grid
from anchorage.learning.data.labels import Labels, only_known
from anchorage.learning.data.stored_pictures import Pictures
from anchorage.learning.data.volumes import StoredVolumes, write_volume
from anchorage.learning.model_hooks import TaskHooks
from anchorage.simulation.images import DecodedImages, SharedImages

STANDS_IN = "(stand-in)"
"""Claim of images that are not here; no document can name it."""
STAND_INS_PER_OUTPUT = 4


class PlannedImages(SharedImages):
    """Images of a rehearsal: noise stands in for those that are not here.

    Parameters
    ----------
    data_root, model, seed, folder, embeddings, before
        As in `SharedImages`.
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
        super().__init__(data_root, model, seed, folder, embeddings, before)
        self._shape, self._folder_of_volumes = model.input_shape, folder / "stand-ins"
        self._stands_for = expect(model.task, TaskHooks)

    def count(self, section: DataSection, *, labelled: bool = True) -> int:
        """Return how many images a section lists."""
        return len(self.of(section)) if _stands_in(section) else super().count(section, labelled=labelled)

    def of(self, section: DataSection, *, labelled: bool = True) -> ImageSet:
        """Return a section's images."""
        if not _stands_in(section):
            return super().of(section, labelled=labelled)
        count = STAND_INS_PER_OUTPUT * max(2, len(self._stands_for.outputs))
        seed = int.from_bytes(blake3(section.model_dump_json().encode()).digest(8), "little")
        rng = np.random.default_rng(seed)
        read, keep_mask = self._stands_for.stand_ins(count), np.arange(count) < count * section.kept_labels // 100
        names = tuple(f"{seed:x}-{row}" for row in range(count))
        values = read.values
        pixels: Pictures
        if len(self._shape) == 4:
            pixels, values = self._volumes(values, rng)
        else:
            pixels = rng.integers(0, 256, (count, *self._shape), np.uint8)
            values = np.broadcast_to(values, (count, *self._shape[1:])) if self._stands_for.gives_maps else values
        labels, strata = only_known(values, keep_mask), np.where(keep_mask, read.strata, -1)
        digests = rng.integers(0, 2**63, count, np.uint64)
        return ImageSet(pixels, labels, names, names, strata, read.stratum_names, digests)

    def _volumes(self, classes: Labels, rng: np.random.Generator) -> tuple[StoredVolumes, Labels]:
        """Return volumes of a patch's size, each of one class, and what stands for their masks."""
        channels, x, y, z = self._shape
        grid, count = Grid((x, y, z), np.eye(4)), len(self._stands_for.outputs)
        self._folder_of_volumes.mkdir(exist_ok=True)
        files = []
        for row, mask in enumerate(classes):
            noise = rng.integers(0, 65536, self._shape, np.uint16)
            counts = np.bincount(mask.ravel(), minlength=count) * x * y * z
            full = np.full((x, y, z), mask.ravel()[0], np.uint8)
            case = Case(noise, full, counts, grid, grid, (), rng.bytes(64), STANDS_IN)
            files.append(write_volume(self._folder_of_volumes / f"{rng.integers(2**63):x}-{row}", case, rng))
        digests = np.stack([np.frombuffer(file.mask_digest, np.uint8) for file in files])
        return StoredVolumes(files, (channels, x, y, z)), digests

    def truth(self, section: DataSection, *, labelled: bool = True) -> Labels:
        """Return the labels of a section's images, [n, ...]."""
        return self.of(section).labels if _stands_in(section) else super().truth(section, labelled=labelled)


def _stands_in(section: DataSection) -> bool:
    return section.claim_name == STANDS_IN


def imagined_sections(spec: FederationSpec) -> dict[str, Any]:
    """Return the fields of the server's sections with stand-ins."""
    sections = {
        name: section.model_copy(update={"claim_name": STANDS_IN, "path": name})
        for name, section in spec.server_data.items()
    }
    anchors = sections.pop("anchors", None)
    evaluation = spec.evaluation.model_copy(update=sections) if spec.evaluation else None
    return {"anchor_data": anchors, "evaluation": evaluation}


def managed_by_stand_ins(silo: Silo) -> Silo:
    """Return a silo that stand-ins are the images of."""
    data = SiloData(format="Digits", labelled_percent=50 if silo.spec.labels == "Partial" else 100)
    managed = Managed(data=data.model_copy(update={"claim_name": STANDS_IN}))
    return silo.model_copy(update={"spec": silo.spec.model_copy(update={"managed": managed})})
