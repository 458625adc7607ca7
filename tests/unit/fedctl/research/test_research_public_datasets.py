"""``fedctl data fetch``: archives of the published forms become folders that study files read."""

import errno
import hashlib
import io
import json
import os
import pickle
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets
from two_addresses import NAME, dead_address_first
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATASET_UNUSABLE
from fedctl.downloading import SILENT_SECONDS
from fedctl.main import app
from fedctl.research.commands import PublicDatasetName
from fedctl.research.public_datasets import DATASETS

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
"""Ten training images, and two for the test."""
LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]
NAMES = {"cifar10": ["airplane", "automobile", "bird"], "cifar100": ["apple", "baby", "bear"], "svhn": ["0", "1", "2"]}


def fetch(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["data", "fetch", *map(str, arguments)])
    if isinstance(result.exception, AnchorageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def batch(rows: slice, key: str) -> bytes:
    """Pickle images as CIFAR's batches hold them: a row per image, its channels one after the other."""
    flat = PIXELS[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
    return pickle.dumps({"data": flat, key: LABELS[rows]}, protocol=2)


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small archives of the published forms; their checksums take the place of the published ones in torchvision."""
    folder = tmp_path / "archives"
    folder.mkdir()
    cifar10 = {f"data_batch_{i}": batch(slice(2 * i - 2, 2 * i), "labels") for i in range(1, 6)}
    cifar10 |= {
        "test_batch": batch(slice(10, 12), "labels"),
        "batches.meta": pickle.dumps({"label_names": NAMES["cifar10"]}),
    }
    cifar100 = {"train": batch(slice(0, 10), "fine_labels"), "test": batch(slice(10, 12), "fine_labels")}
    cifar100 |= {"meta": pickle.dumps({"fine_label_names": NAMES["cifar100"]})}
    for kind, files in ((datasets.CIFAR10, cifar10), (datasets.CIFAR100, cifar100)):
        with tarfile.open(folder / kind.filename, "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(f"{kind.base_folder}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        monkeypatch.setattr(kind, "tgz_md5", md5((folder / kind.filename).read_bytes()))
        for listed in ("train_list", "test_list"):
            monkeypatch.setattr(kind, listed, [[name, md5(files[name])] for name, _ in getattr(kind, listed)])
        monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5(files[kind.meta["filename"]])})
    published = {}
    for part, rows in (("train", slice(0, 10)), ("test", slice(10, 12))):
        file = folder / f"{part}_32x32.mat"
        digits = np.array([[label or 10] for label in LABELS[rows]], np.uint8)  # SVHN writes 0 as 10
        savemat(file, {"X": PIXELS[rows].transpose(1, 2, 3, 0), "y": digits})
        published[part] = ["http://127.0.0.1:1/", file.name, md5(file.read_bytes())]
    monkeypatch.setattr(datasets.SVHN, "split_list", {**datasets.SVHN.split_list, **published})
    return folder


@pytest.fixture
def server(archives: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server on loopback with the archives; its addresses take the place of the published ones."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(archives))) as running:
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{running.server_port}"
        for kind in (datasets.CIFAR10, datasets.CIFAR100):
            monkeypatch.setattr(kind, "url", f"{address}/{kind.filename}")
        splits = {
            part: [f"{address}/{name}", name, digest] for part, (_, name, digest) in datasets.SVHN.split_list.items()
        }
        monkeypatch.setattr(datasets.SVHN, "split_list", splits)
        yield
        running.shutdown()
        thread.join()


def check(folder: Path, name: str) -> None:
    """Compare every image below a folder with what was published."""
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.png")}
    expected = set()
    for row, label in enumerate(LABELS):
        part, number = ("train", row) if row < 10 else ("test", row - 10)
        own_rows, pooled = (
            f"{part}/{NAMES[name][label]}/{number:05d}.png",
            f"all/{NAMES[name][label]}/{part}-{number:05d}.png",
        )
        expected |= {own_rows, pooled}
        for file in (own_rows, pooled):
            with Image.open(folder / file) as image:
                assert np.array_equal(np.asarray(image), PIXELS[row]), file
    assert files == expected
    assert [path.name for path in folder.parent.iterdir()] == [name], "nothing else is left"


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_becomes_a_folder_per_class(name: str, archives: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    report = json.loads(fetch(name, "--out", out, "--archive", archives, "-o", "json"))
    assert report == {"path": str(out / name), "train": 10, "test": 2}
    check(out / name, name)
    assert sorted(path.name for path in archives.iterdir()) == [
        "cifar-10-python.tar.gz", "cifar-100-python.tar.gz", "test_32x32.mat", "train_32x32.mat",
    ], "the folder of the archives stays as it is"  # fmt: skip


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_file_system_without_links_holds_copies(
    unpacked: bool, archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if unpacked:
        with tarfile.open(archives / datasets.CIFAR10.filename) as archive:
            archive.extractall(archives, filter="data")

    def refuse(*arguments: object, **more: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "symlink", refuse)
    fetch("cifar10", "--out", tmp_path / "data", "--archive", archives)
    check(tmp_path / "data" / "cifar10", "cifar10")


@pytest.mark.parametrize("name", NAMES)
def test_without_an_archive_the_published_one_is_downloaded(name: str, server: None, tmp_path: Path) -> None:
    out = tmp_path / "data"
    assert fetch(name, "--out", out) == f"{out / name / 'train'}: 10 images\n{out / name / 'test'}: 2 images\n"
    check(out / name, name)


def test_the_second_address_of_the_source_s_name_is_tried_within_seconds(
    server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = dead_address_first(monkeypatch)
    monkeypatch.setattr(datasets.CIFAR10, "url", datasets.CIFAR10.url.replace("127.0.0.1", NAME))
    fetch("cifar10", "--out", tmp_path / "data")
    check(tmp_path / "data" / "cifar10", "cifar10")
    assert set(waited) == {SILENT_SECONDS}


def test_the_archive_itself_or_what_was_unpacked_from_it_will_do(archives: Path, tmp_path: Path) -> None:
    fetch("cifar10", "--out", tmp_path / "a", "--archive", archives / "cifar-10-python.tar.gz")
    check(tmp_path / "a" / "cifar10", "cifar10")
    with tarfile.open(archives / "cifar-10-python.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    fetch("cifar10", "--out", tmp_path / "b", "--archive", tmp_path / "unpacked")
    check(tmp_path / "b" / "cifar10", "cifar10")
    (tmp_path / "unpacked" / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"no pickle")
    refused("does not hold the published data set", "cifar10", tmp_path, "--archive", tmp_path / "unpacked")


def refused(words: str, name: str, folder: Path, *arguments: object) -> str:
    """Return the message of a fetch that fails, and leaves nothing behind."""
    with pytest.raises(AnchorageError, match=words) as raised:
        fetch(name, "--out", folder / "refused", *arguments)
    assert raised.value.failure is DATASET_UNUSABLE and "\n" not in raised.value.message
    assert not list((folder / "refused").iterdir())
    return raised.value.message


@pytest.mark.parametrize(("name", "file"), [("cifar100", "cifar-100-python.tar.gz"), ("svhn", "test_32x32.mat")])
def test_an_archive_that_is_not_the_published_one_is_refused_and_not_overwritten(
    name: str, file: str, server: None, archives: Path, tmp_path: Path
) -> None:
    (archives / file).write_bytes(b"cut off")
    assert file in refused("not the published archive", name, tmp_path, "--archive", archives)
    assert (archives / file).read_bytes() == b"cut off"
    (archives / file).unlink()
    assert file in refused(f"found no {file}", name, tmp_path, "--archive", archives)


@pytest.mark.parametrize("name", NAMES)
def test_a_download_that_fails_names_the_archive_to_bring(
    name: str, server: None, archives: Path, tmp_path: Path
) -> None:
    for file in archives.iterdir():
        file.unlink()
    message = refused("cannot be fetched: HTTP Error 404", name, tmp_path)
    assert message.endswith("on a machine that reaches it, and name it with --archive")


def test_a_download_of_another_content_is_refused(server: None, archives: Path, tmp_path: Path) -> None:
    (archives / "cifar-10-python.tar.gz").write_bytes(b"a login page")
    refused("cannot be fetched: File not found or corrupted", "cifar10", tmp_path)


def test_a_folder_that_exists_stays(archives: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    result = CliRunner().invoke(app, ["data", "fetch", "cifar10", "--out", str(tmp_path), "--archive", str(archives)])
    assert result.exit_code == 2 and "exists" in result.output
    assert not list((tmp_path / "cifar10").iterdir())


def test_the_command_offers_the_data_sets_that_there_are() -> None:
    assert [name.value for name in PublicDatasetName] == list(DATASETS)
