"""``fedctl data fetch``: unpacks the data sets of papers, as torchvision knows them, into a folder of images per class."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from typing import Any
from urllib.error import HTTPError

import typer

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.data import DATASET_UNUSABLE
from fedctl.downloading import limiting_silence
from fedctl.output import Format, emit
from fedctl.writing import writing

try:
    from torchvision import datasets
    from torchvision.datasets.utils import check_integrity
except ImportError as missing:
    raise AnchorageError(
        commands.PACKAGE_MISSING, f"{missing.name} is not installed; pip install 'anchorage[learning]'"
    ) from missing

POOLED = "all"
"""Folder of the training and test images together, for studies that divide them themselves."""


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """A data set that torchvision reads."""

    archives: tuple[tuple[str, str, str], ...]
    """Files that it is published as: name, MD5, address; the last one holds the test images."""
    unpacked: str | None
    """Folder that torchvision makes of the archive; None where it reads the archives themselves."""
    read: Callable[[Path, str, bool], tuple[Any, Sequence[str]]]
    """From a folder, ``train`` or ``test``, and whether to download: pairs of PIL image and label, and the names of the classes."""


def _cifar(dataset: type[datasets.CIFAR10]) -> PublicDataset:
    """Return CIFAR-10 or CIFAR-100. torchvision opens its pickles only if their MD5 is the published one."""

    def read(root: Path, part: str, download: bool) -> tuple[Any, Sequence[str]]:
        images = dataset(root, train=part == "train", download=download)
        return images, images.classes

    return PublicDataset(((dataset.filename, dataset.tgz_md5, dataset.url),), dataset.base_folder, read)


def _svhn() -> PublicDataset:
    """Return the cropped digits of SVHN, without their part "extra"."""

    def read(root: Path, part: str, download: bool) -> tuple[Any, Sequence[str]]:
        return datasets.SVHN(root, split=part, download=download), [str(digit) for digit in range(10)]

    parts = (datasets.SVHN.split_list[part] for part in ("train", "test"))
    return PublicDataset(tuple((name, md5, url) for url, name, md5 in parts), None, read)


DATASETS: Mapping[str, Callable[[], PublicDataset]] = {
    "cifar10": lambda: _cifar(datasets.CIFAR10),
    "cifar100": lambda: _cifar(datasets.CIFAR100),
    "svhn": _svhn,
}
"""The data sets by the names of their folders."""


def fetch_dataset(name: str, out: Path, archive: Path | None, output: Format) -> None:
    """Write ``OUT/NAME/train/CLASS/00000.png``, ``OUT/NAME/test/CLASS/00000.png``, and both again as links in ``OUT/NAME/all``.

    A file's number is its row in the published order.

    Parameters
    ----------
    name : str
        ``cifar10``, ``cifar100`` or ``svhn``.
    out : Path
        Data root that gets the folder.
    archive : Path or None
        The published archive, or a folder that holds it or what was unpacked from it; None: it is downloaded.
    output : Format
        How to say what was written.

    Raises
    ------
    AnchorageError
        DATASET_UNUSABLE: it cannot be downloaded, or is not the published one. WORKDIR_UNUSABLE: the folder cannot be written.
    BadParameter
        The folder exists.
    """
    folder = out / name
    if folder.exists():
        raise typer.BadParameter(f"found {folder}, which exists; name another --out, or remove the folder first")
    dataset = DATASETS[name]()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{name}-", dir=out)
    with temporary as place:
        source, unpacked = Path(place, "source"), Path(place, name)
        source.mkdir()
        if archive is not None:
            _link(dataset, archive, source)
        counts = {}
        for part in ("train", "test"):
            images, classes = _read(dataset, source, part, archive)
            with writing(folder):
                counts[part] = _write(images, classes, unpacked, part)
        with writing(folder):
            unpacked.rename(folder)
    if output.for_people:
        for part, count in counts.items():
            typer.echo(f"{folder / part}: {count} images")
    else:
        emit({"path": str(folder), **counts}, output)


def _link(dataset: PublicDataset, archive: Path, source: Path) -> None:
    """Link the archives into a folder that torchvision reads, once their checksums are the published ones: it would overwrite others.

    Raises
    ------
    AnchorageError
        DATASET_UNUSABLE.
    """
    if dataset.unpacked and (archive / dataset.unpacked).is_dir():
        _borrow((archive / dataset.unpacked).resolve(), source / dataset.unpacked)
        return
    for name, md5, url in dataset.archives:
        file = archive if archive.is_file() and len(dataset.archives) == 1 else archive / name
        if not file.is_file():
            message = f"found no {name} at {archive}; fetch it from {url} and name its folder with --archive"
            raise AnchorageError(DATASET_UNUSABLE, message)
        try:
            intact = check_integrity(file, md5)
        except OSError as error:
            raise AnchorageError(DATASET_UNUSABLE, f"{file} cannot be read: {error.strerror or error}") from error
        if not intact:
            message = f"{file} is not the published archive, whose MD5 is {md5}; fetch it again from {url}"
            raise AnchorageError(DATASET_UNUSABLE, message)
        _borrow(file.resolve(), source / name)


def _borrow(original: Path, name: Path) -> None:
    """Link a file or folder under another name; copy it where the file system has no links."""
    try:
        name.symlink_to(original)
    except OSError:
        (shutil.copytree if original.is_dir() else shutil.copyfile)(original, name)


def _read(dataset: PublicDataset, source: Path, part: str, archive: Path | None) -> tuple[Any, Sequence[str]]:
    """Read a part, after a download where no archive is there.

    Raises
    ------
    AnchorageError
        DATASET_UNUSABLE.
    """
    name, _, url = dataset.archives[-1 if part == "test" else 0]
    unpacked = dataset.unpacked is not None and (source / dataset.unpacked).exists()
    try:
        with limiting_silence(), redirect_stdout(sys.stderr):  # older versions of torchvision print there
            return dataset.read(source, part, archive is None or not unpacked)
    except (OSError, RuntimeError, HTTPException, TarError, EOFError) as error:
        if isinstance(error, HTTPError):
            error.close()  # its answer holds the connection
        reason = (str(error) or type(error).__name__).split("\n", 1)[0][:200]
        if archive is None:
            message = f"{url} cannot be fetched: {reason}; fetch {name} on a machine that reaches it, and name it with --archive"
        elif isinstance(error, OSError):
            message = f"{archive} cannot be read: {reason}; check its permissions"
        else:
            message = f"{archive} does not hold the published data set; fetch {name} again from {url}"
        raise AnchorageError(DATASET_UNUSABLE, message) from error


def _write(images: Any, classes: Sequence[str], folder: Path, part: str) -> int:
    """Write the images of a part and return their number."""
    for label in classes:
        (folder / part / label).mkdir(parents=True)
        (folder / POOLED / label).mkdir(parents=True, exist_ok=True)
    for row, (image, label) in enumerate(images):
        file = folder / part / classes[label] / f"{row:05d}.png"
        image.save(file)
        pooled = folder / POOLED / classes[label] / f"{part}-{file.name}"
        try:
            pooled.hardlink_to(file)
        except OSError:  # a file system without hard links
            shutil.copyfile(file, pooled)
    return len(images)
