"""A store of pictures on disk: what a section's images look like at a model's size, so that a second start decodes nothing."""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.learning.data.decoders import decode_content, decoders, digest_of
from anchorage.learning.data.decoding import Decoded, Input, RefusedImageError, read_content
from anchorage.learning.data.headers import FileState
from anchorage.learning.data.listed_images import in_order, not_blank
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.report import Findings
from anchorage.learning.data.sources import Source, file_and_frame
from anchorage.learning.data.stored_headers import headers_stored_in
from anchorage.learning.data.stored_pictures import Entry, PictureFile, PictureWriter, StoredPictures
from anchorage.learning.data.volume_store import VolumeStore
from anchorage.transport.files import partial_path, sync

MOST_BYTES = 256 << 30
"""Bytes of all sets in a folder; when a set is added, those that were not used for longest go until it fits. The set itself may be larger."""
_SUFFIX, _HEADERS = ".pictures", ".headers"

_log = logging.getLogger(__name__)


class StoreFullError(Exception):
    """A set of pictures does not fit on the disk."""


class PictureStore:
    """Sets of pictures in a folder that only this user may read, a file per set; files may be removed at any time.

    A set is found again by its name, size and channels. Pictures of files whose path, size and time are as they were are taken as they are; of the
    others the content is compared, and decoded where it is new. Pictures of files that are listed no more go when the set is read again.

    Parameters
    ----------
    folder : Path
        Where the files lie; made when it is needed.
    most : int
        As `MOST_BYTES`.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self._folder, self._most = folder, most
        self.volumes = VolumeStore(folder / "volumes")
        """Sets of volumes."""

    def read(self, name: str, listing: Listing, wanted: Input) -> tuple[StoredPictures, Findings]:
        """Return the pictures of a listing's images that can be used, and what was found of each image.

        Another process that reads the same set is waited for.

        Parameters
        ----------
        name : str
            What the set is, and the intensity of its pictures, the same whenever it is read.
        listing : Listing
            Its files.
        wanted : Input
            What the model takes.

        Raises
        ------
        StoreFullError
            They do not fit on the disk.
        AnchorageError
            STATE_UNUSABLE: the folder cannot be used.
        """
        key = blake3(f"{wanted.side}\0{wanted.channels}\0{name}".encode()).hexdigest(16)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock(self._folder / f"{key}.lock"):
                return _Reading(self, self._folder / (key + _SUFFIX), listing, wanted).read()
        except OSError as error:
            message = f"pictures cannot be stored in {self._folder}: {error.strerror or error}"
            raise AnchorageError(STATE_UNUSABLE, message) from error

    def headers(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which headers of files are those of the last start, where the files are as they were, by the name of their folder."""
        return headers_stored_in(self._folder / f"{blake3(name.encode()).hexdigest(16)}{_HEADERS}")

    def make_room(self, nbytes: int, own_file: Path) -> None:
        """Remove sets until so many bytes fit, those first that were not used for longest; what a killed process left goes in any case.

        Raises
        ------
        StoreFullError
            They do not fit without any other set.
        OSError
            The folder cannot be used.
        """
        for partial in self._folder.glob(f"*{partial_path(Path(_SUFFIX)).name}"):
            _remove_abandoned(partial)
        others = [(path.stat(), path) for path in self._folder.glob(f"*{_SUFFIX}") if path != own_file]
        held = sum(state.st_size for state, _ in others)
        for state, path in sorted(others, key=lambda other: other[0].st_mtime_ns):
            if held + nbytes > self._most or shutil.disk_usage(self._folder).free < nbytes:
                path.unlink(missing_ok=True)
                held -= state.st_size
        if (free := shutil.disk_usage(self._folder).free) < nbytes:
            needed = f"{nbytes / 2**30:.1f} GiB of pictures"
            raise StoreFullError(f"{needed} do not fit in {self._folder}, where {free / 2**30:.1f} GiB are free")


class _Reading:
    """One reading of a set, while its lock is held."""

    def __init__(self, store: PictureStore, file: Path, listing: Listing, wanted: Input) -> None:
        self._store, self._file, self._listing, self._wanted = store, file, listing, wanted
        self._shape = (wanted.channels, wanted.side, wanted.side)
        self._before = _open(file, self._shape)
        self._dtype = self._before.dtype if self._before else np.dtype(np.uint8)
        self._entries = self._before.entries if self._before else ()
        current = [(place, entry) for place, entry in enumerate(self._entries) if entry.decoder in decoders()]
        self._by_state = {FileState(entry.path, entry.nbytes, entry.modified): place for place, entry in current}
        self._by_digest = {entry.digest: place for place, entry in current}

    def read(self) -> tuple[StoredPictures, Findings]:
        """Decode what is new, and return pictures and findings."""
        known, unknown = dict[int, int](), dict[int, FileState]()
        for row, source in enumerate(self._listing.sources):
            if row not in self._listing.bad:
                state = _state_of(source)
                if (place := self._by_state.get(state)) is not None:
                    known[row] = place
                else:
                    unknown[row] = state
        file, places, bad = self._update(known, unknown)
        findings = Findings(self._listing)
        for row in range(len(self._listing)):
            findings.add(row, bad[row] if row in bad else file.entries[places[row]])
        findings.without_masks()
        return StoredPictures(file, np.array([places[row] for row in findings.good], np.int64)), findings

    def _update(
        self, known: Mapping[int, int], unknown: Mapping[int, FileState]
    ) -> tuple[PictureFile, Mapping[int, int], Mapping[int, BadImage]]:
        """Return a file with the pictures of all rows that can be used, the place of each, and the other rows; the file of before where nothing
        is new.
        """
        bad = dict(self._listing.bad)
        before = self._before if len(known) == len(self._entries) else None
        if before is not None and not unknown:
            os.utime(self._file)
            return before, known, bad
        count = len(known) + len(unknown)
        self._make_room(count, self._dtype)
        partial = partial_path(self._file)
        try:
            with PictureWriter(partial, self._shape, self._dtype) as writer:
                places = self._write_new(writer, unknown, bad, count)
                if before is not None and not places:
                    os.utime(self._file)
                    return before, known, bad
                places |= self._copy(writer, known)
                writer.finish()
            sync(partial)
            partial.replace(self._file)
            sync(self._file.parent)
        finally:
            partial.unlink(missing_ok=True)
        return PictureFile(self._file), places, bad

    def _write_new(
        self, writer: PictureWriter, unknown: Mapping[int, FileState], bad: dict[int, BadImage], count: int
    ) -> dict[int, int]:
        """Write the pictures of files that are new or were changed; return their places, and add the others to `bad`. `count`: of all rows."""
        places = dict[int, int]()
        for row, outcome in zip(unknown, in_order(self._decode, tuple(unknown)), strict=True):
            if isinstance(outcome, BadImage):
                bad[row] = outcome
                continue
            places[row] = len(writer.entries)
            state = unknown[row]
            if isinstance(outcome, int):
                writer.append(self._picture(outcome), replace(self._entries[outcome], **state._asdict()))
            else:
                if outcome.pixels.dtype == np.uint16 and writer.dtype == np.uint8:
                    self._make_room(count, outcome.pixels.dtype)
                    writer.deepen()
                writer.append(outcome.pixels, _entry_of(outcome, state))
        return places

    def _make_room(self, count: int, dtype: np.dtype[Any]) -> None:
        self._store.make_room(int(np.prod(self._shape)) * dtype.itemsize * count, self._file)

    def _decode(self, row: int) -> Decoded | int | BadImage:
        """Decode an image, or return the place of the picture of a file with the same content."""
        try:
            source = self._listing.sources[row]
            assert not isinstance(source, np.ndarray), "pixels in memory are not stored"
            file, frame = file_and_frame(source)
            content = read_content(file)
            if self._by_digest and (place := self._by_digest.get(digest_of(content, frame))) is not None:
                return place
            return not_blank(decode_content(content, Path(file or "").name, self._wanted, frame))
        except RefusedImageError as refused:
            return BadImage(self._listing.ids[row], refused.reason, refused.detail)

    def _copy(self, writer: PictureWriter, known: Mapping[int, int]) -> dict[int, int]:
        places = dict[int, int]()
        for row, place in known.items():
            places[row] = len(writer.entries)
            writer.append(self._picture(place), self._entries[place])
        return places

    def _picture(self, place: int) -> NDArray[Any]:
        assert self._before is not None, "the place is in it"
        picture = np.empty(self._shape, self._before.dtype)
        self._before.read_into(place, picture)
        return picture


def _open(file: Path, shape: tuple[int, int, int]) -> PictureFile | None:
    """Open a file of pictures; None where there is none, or it is damaged."""
    try:
        picture_file = PictureFile(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: %s; the images are decoded anew", file, error)
        return None
    return picture_file if picture_file.shape == shape else None


def _state_of(source: Source) -> FileState:
    """Return path, size and time of a file; of one that is not there what no file has."""
    assert not isinstance(source, np.ndarray), "pixels in memory are not stored"
    file, frame = file_and_frame(source)
    try:
        file_status = None if file is None else file.stat()
    except OSError:  # which decoding names
        file_status = None
    return FileState(
        f"{file or ''}{f'#{frame}' if frame else ''}",
        *((-1, -1) if file_status is None else (file_status.st_size, file_status.st_mtime_ns)),
    )


def _entry_of(decoded: Decoded, state: FileState) -> Entry:
    return Entry(
        state.path,
        state.nbytes,
        state.modified,
        decoded.digest,
        decoded.size,
        decoded.mode,
        decoded.white,
        decoded.paged,
        decoded.decoder,
        decoded.few_values,
        decoded.above,
        decoded.facts,
    )


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Hold the lock of a set, which ends with this process."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("waiting for another process that reads the same images into %s", file.parent)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_abandoned(partial: Path) -> None:
    """Remove what a process that was killed left of a set, unless another process writes it now."""
    try:
        handle = os.open(partial.with_name(f"{partial.name.split('.')[0]}.lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        partial.unlink(missing_ok=True)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)
