"""What a silo carries from round to round: momentum, FlexMatch's curriculum, labels of its validation split."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LEARNER_STATE_UNWRITABLE
from anchorage.api.regular_files import check_regular
from anchorage.transport.files import replacing


class RoundState:
    """Arrays by name in one file per round, of which the newest three stay: silos work on a round before the
    server has written the one before it, and may have to do that one again.

    A task that is done again (its trainer was killed) starts from the state before its round and so ends in the same bytes.

    Parameters
    ----------
    folder : Path
        A folder of one run; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _files(self) -> dict[int, Path]:
        return {int(p.stem.removeprefix("round-")): p for p in self._folder.glob("round-*.safetensors")}

    def before(self, round_number: int) -> Mapping[str, NDArray[Any]]:
        """Return what was kept in the newest round before this one; empty where there is none.

        Raises
        ------
        AnchorageError
            The file cannot be read, or is not as it was written.
        """
        earlier = {n: p for n, p in self._files().items() if n < round_number}
        return self._read(earlier[max(earlier)]) if earlier else {}

    def of(self, round_number: int) -> Mapping[str, NDArray[Any]]:
        """Return what was kept in this round; empty where nothing was.

        Raises
        ------
        AnchorageError
            The file cannot be read.
        """
        path = self._files().get(round_number)
        return self._read(path) if path else {}

    def keep(self, round_number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace what was kept in this round, and forget all but the two newest rounds before it.

        Raises
        ------
        AnchorageError
            The folder cannot be written.
        """
        target = self._folder / f"round-{round_number:06d}.safetensors"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(target) as partial:
                write_checked(partial, arrays)
            files = self._files()
            earlier = sorted(n for n in files if n < round_number)[-2:]
            for number in set(files) - {round_number, *earlier}:
                files[number].unlink()
        except (OSError, SafetensorError) as error:
            raise _unwritable(target, error) from error

    def _read(self, path: Path) -> Mapping[str, NDArray[Any]]:
        try:
            return read_checked(path)
        except (OSError, SafetensorError) as error:
            raise _unwritable(path, error) from error


def write_checked(path: Path, arrays: Mapping[str, NDArray[Any]], terms: str = "") -> None:
    """Write arrays by name with their checksum.

    Parameters
    ----------
    path : Path
        The file.
    arrays : mapping of str to ndarray
        Of any shape and dtype.
    terms : str
        What they depend on; `read_checked` wants the same.

    Raises
    ------
    OSError, SafetensorError
        The folder is missing, full or not writable.
    """
    contiguous = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    save_file(contiguous, path, {"digest": digest_of(contiguous, terms)})


def read_checked(path: Path, terms: str = "") -> Mapping[str, NDArray[Any]]:
    """Return the arrays that `write_checked` wrote.

    Raises
    ------
    OSError, SafetensorError
        The file cannot be read, is not as it was written, or was written under other terms.
    """
    check_regular(path)
    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        if (file.metadata() or {}).get("digest") != digest_of(arrays, terms):
            raise OSError("its bytes are not those that were written")
    return arrays


def digest_of(arrays: Mapping[str, NDArray[Any]], terms: str = "") -> str:
    """Return a digest of arrays by name, and of a text."""
    digest = blake3(terms.encode())
    for name in sorted(arrays):
        digest.update(name.encode()).update(np.asarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _unwritable(path: Path, error: Exception) -> AnchorageError:
    return AnchorageError(LEARNER_STATE_UNWRITABLE, f"{path}: {error}; free space or check the folder's permissions")
