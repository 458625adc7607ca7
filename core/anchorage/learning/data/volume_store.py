"""A store of volumes on disk: what a section's files look like at a model's spacing, so that a second start decodes nothing."""

import fcntl
import logging
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from blake3 import blake3

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.api.model import ModelDescription, VolumeSpec
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.cases import Case, case_of
from anchorage.learning.data.decoders import decoders, shades_of
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.listed_images import without_warnings
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import DecodedMasks
from anchorage.learning.data.report import Findings
from anchorage.learning.data.sources import Channels, Series, Source, files_of
from anchorage.learning.data.volumes import MASK_DIGEST, StoredVolume, StoredVolumes, write_volume

RULES = 1
"""Raised when other volumes are made of the same files than before."""
_SUFFIX, _LOCK = ".volume", "used"
_SPARE_BYTES = 1 << 28
"""Bytes that stay free on the disk."""

_log = logging.getLogger(__name__)


class VolumeStore:
    """Sets of volumes in a folder that only this user may read, a folder per set and a file per volume. Those that are not used may be removed.

    A volume is found again by its files' paths, sizes and times, and by what the model takes. Volumes of files that are listed no more go when the
    set is read again.

    Parameters
    ----------
    folder : Path
        Where the files lie; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def temporary(cls) -> "VolumeStore":
        """Return a store that goes with this process."""
        folder = tempfile.mkdtemp(prefix="anchorage-volumes-")
        store = cls(Path(folder))
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
        return store

    def read(self, name: str, listing: Listing, model: ModelDescription) -> tuple[StoredVolumes, Findings]:
        """Return the volumes of a listing's cases that can be used, and what was found of each case.

        Parameters
        ----------
        name : str
            What the set is, the same whenever it is read.
        listing : Listing
            Its files.
        model : ModelDescription
            Of volumes.

        Raises
        ------
        AnchorageError
            STATE_UNUSABLE: the folder cannot be used, or is full.
        """
        volume = model.volume
        assert volume is not None, "the model is of volumes"
        folder = self._folder / blake3(name.encode()).hexdigest(16)
        findings = Findings(listing)
        volumes: list[StoredVolume] = []
        digests = np.full((len(listing), MASK_DIGEST), UNKNOWN_PIXEL, np.uint8)
        counts = np.zeros((len(listing), len(model.task.outputs)), np.int64)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(folder)
            used = _Lock(folder / _LOCK)
            file_names = {_LOCK}
            for row in range(len(listing)):
                outcome = listing.bad.get(row) or self._case(folder, row, listing, model, volume)
                findings.add(row, outcome)
                if isinstance(outcome, StoredVolume):
                    file_names.add(outcome.path.name)
                    volumes.append(outcome)
                    if outcome.masked:
                        digests[row] = np.frombuffer(outcome.mask_digest, np.uint8)
                        counts[row] = outcome.counts
            for file in folder.iterdir():
                if file.name not in file_names:
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(error.strerror or str(error), self._folder) from error
        if listing.masks is not None:
            findings.take_masks(DecodedMasks(digests, counts))
        findings.without_masks()
        return StoredVolumes(volumes, (model.channels, *volume.voxels), keeps=(self, used)), findings

    def _case(
        self, folder: Path, row: int, listing: Listing, model: ModelDescription, volume: VolumeSpec
    ) -> StoredVolume | BadImage:
        """Return a volume, decoded where it is not there yet."""
        mask = None if listing.masks is None else listing.masks.files[row]
        shown = model.model_dump_json(include={"intensity", "channels", "task"}, exclude_none=True)
        table = b"" if listing.masks is None else listing.masks.table.tobytes()
        unusual = volume.model_dump(include={"nan_voxels", "orientation"}, exclude_defaults=True)
        states = [*_states(listing.sources[row]), "mask", *_states(mask)]
        cache_terms = "\0".join([str(RULES), *decoders(), shown, *volume.spacing, *unusual.values(), *states])
        path = folder / (blake3(cache_terms.encode() + table).hexdigest(16) + _SUFFIX)
        if (before := _open(path)) is not None:
            return before
        if isinstance(case := read_case(listing, row, model), BadImage):
            return case
        self._make_room(math.prod(case.values.shape) * 3, folder)
        return write_volume(path, case, np.random.default_rng(int.from_bytes(case.digest[:8], "little")))

    def _make_room(self, nbytes: int, own_path: Path) -> None:
        """Remove sets until so many bytes fit, those first that were not used for longest.

        Raises
        ------
        AnchorageError
            STATE_UNUSABLE: they do not fit without any other set.
        """
        others = sorted(
            (path.stat().st_mtime_ns, path) for path in self._folder.iterdir() if path.is_dir() and path != own_path
        )
        for _, path in others:
            if shutil.disk_usage(self._folder).free >= nbytes + _SPARE_BYTES:
                return
            if _Lock(path / _LOCK).alone():
                _log.warning("volumes that were not used for longest are removed, for the disk is full")
                shutil.rmtree(path, ignore_errors=True)
        if (free := shutil.disk_usage(self._folder).free) < nbytes + _SPARE_BYTES:
            raise _unusable(
                f"a volume needs {nbytes / 2**20:.0f} MiB, and {free / 2**20:.0f} MiB are free", self._folder
            )


def read_case(listing: Listing, row: int, model: ModelDescription) -> Case | BadImage:
    """Read a row of a listing as a model of volumes takes it."""
    assert model.volume is not None, "the model is of volumes"
    source, masks = listing.sources[row], listing.masks
    try:
        if not isinstance(source, Path | Series | Channels):
            raise RefusedImageError("Unsupported", "no volume; a model of volumes takes NIfTI files and DICOM series")
        mask = None if masks is None else masks.files[row]
        table = np.zeros(1 << 16, np.uint8) if masks is None else masks.table
        volume, shades, classes = model.volume, shades_of(model), tuple(model.task.outputs)
        with without_warnings():
            spacing, nan, orientation = volume.millimetres, volume.nan_voxels, volume.orientation
            return case_of(source, mask, model.channels, spacing, shades, table, classes, nan, orientation)
    except RefusedImageError as refused:
        return BadImage(listing.ids[row], refused.reason, refused.detail)


class _Lock:
    """Held, shared with others, as long as a set is used."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self._handle)
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def alone(self) -> bool:
        """Return whether nobody else holds it; it is held alone then."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _open(path: Path) -> StoredVolume | None:
    """Open a volume; None where there is none, or it is damaged."""
    try:
        return StoredVolume(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError):
        _log.warning("a stored volume is damaged; it is decoded anew")
        return None


def _states(source: Source) -> Sequence[str]:
    """Return path, size and time of each file of a volume; of one that is not there what no file has."""
    if isinstance(source, Channels):
        return [text for part in source.parts for text in ("channel", *_states(part))]
    state_texts = []
    for file in files_of(source):
        try:
            state = file.stat()
        except OSError:  # which decoding names
            state_texts.append(f"{file}\x1f-")
        else:
            state_texts.append(f"{file}\x1f{state.st_size}\x1f{state.st_mtime_ns}")
    return state_texts


def _unusable(what: str, folder: Path) -> AnchorageError:
    return AnchorageError(
        STATE_UNUSABLE,
        f"volumes cannot be stored in {folder}: {what}; make room, or name another folder",
        redacted=f"volumes cannot be stored: {what}; make room, or name another folder",
    )
