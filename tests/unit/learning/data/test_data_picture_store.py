"""Pictures on disk: the same as in memory, decoded once, and whole or not there."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from drawn_images import draw, fill
from PIL import Image
from read_sections import model_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES, IMAGES_EXCEED_MEMORY
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.learning.data import picture_store, read, reading
from anchorage.learning.data.decoders import decoders
from anchorage.learning.data.picture_store import PictureStore
from anchorage.learning.data.stored_pictures import StoredPictures

CLASSES = ("a", "b")
PICTURE_BYTES = 3 * 8 * 8


@pytest.fixture(autouse=True)
def everything_is_stored(monkeypatch):
    monkeypatch.setattr(reading, "IN_MEMORY_BYTES", 0)


@pytest.fixture
def site(tmp_path):
    """Ten images, one of them with 16 bits, and three that cannot be used."""
    fill(tmp_path / "site" / "a", 6)
    fill(tmp_path / "site" / "b", 3, start=6)
    grey = np.linspace(0, 4095, 400).astype(np.uint16).reshape(20, 20)
    Image.fromarray(grey).save(tmp_path / "site" / "b" / "deep.png")
    (tmp_path / "site" / "a" / "image100.png").write_bytes(b"no image")
    (tmp_path / "site" / "b" / "image101.png").write_bytes(b"")
    (tmp_path / "site" / "b" / "image102.png").symlink_to("/etc/hostname")
    return tmp_path / "site"


@pytest.fixture
def decoded(monkeypatch):
    """Sizes of the files that were decoded, in any order."""
    calls = []
    original = picture_store.decode_content

    def decode(content, *wanted):
        calls.append(content)
        return original(content, *wanted)

    monkeypatch.setattr(picture_store, "decode_content", decode)
    return calls


def stored(root, *, store=None, size=8, name="site", **fields):
    section = SiloData(format="ImageFolder", claim_name=name, **{"on_bad_image": "Skip", **fields})
    store = PictureStore(root / "store") if store is None else store or None
    return read(section, root, model_of(CLASSES, size, 3), 1, store=store)


def all_of(images):
    return images.images.read(np.arange(len(images)))


def files(root):
    return sorted(path.name for path in (root / "store").iterdir() if path.suffix != ".lock")


def test_stored_pictures_are_those_in_memory(tmp_path, site):
    (images, report), (in_memory, report_in_memory) = stored(tmp_path), stored(tmp_path, store=False)
    for _ in range(2):
        assert isinstance(images.images, StoredPictures) and isinstance(in_memory.images, np.ndarray)
        assert (
            images.images.shape == in_memory.images.shape == (10, 3, 8, 8)
            and images.images.nbytes == in_memory.images.nbytes
        )
        assert np.array_equal(all_of(images), in_memory.images)
        assert (images.ids, images.labels.tolist()) == (in_memory.ids, in_memory.labels.tolist())
        assert images.fingerprint(bytes(32)) == in_memory.fingerprint(bytes(32))
        assert report == report_in_memory and len(report.bad) == 3 and report.windows == {"0-4095": 1}
        images, report = stored(tmp_path)


def test_a_deep_picture_keeps_its_levels_and_others_gain_none(tmp_path, site):
    grey = np.linspace(0, 4095, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(grey).save(site / "b" / "deep.png")
    images, _ = stored(tmp_path)
    place = ["deep" in name for name in images.ids].index(True)
    (deep,) = images.images.read(np.array([place]))
    assert deep.dtype == np.uint16 and (deep[0] == np.rint(grey * (65535 / 4095))).all()
    others = np.delete(all_of(images), place, 0)
    (site / "b" / "deep.png").unlink()
    flat, _ = stored(tmp_path, store=False)
    assert flat.images.dtype == np.uint8 and (others == flat.images.astype(np.uint16) * 257).all()


def test_a_deep_picture_that_comes_later_deepens_the_set(tmp_path, site):
    deep = (site / "b" / "deep.png").read_bytes()
    (site / "b" / "deep.png").unlink()
    first, _ = stored(tmp_path)
    assert all_of(first).dtype == np.uint8 and first.images.nbytes == 9 * PICTURE_BYTES
    (site / "b" / "deep.png").write_bytes(deep)
    (images, _), (in_memory, _) = stored(tmp_path), stored(tmp_path, store=False)
    assert images.images.nbytes == 2 * 10 * PICTURE_BYTES and np.array_equal(all_of(images), in_memory.images)


def test_some_of_them_are_selected_without_being_read(tmp_path, site):
    images, _ = stored(tmp_path)
    some = images.select([7, 2, 2]).select(np.array([1, 0]))
    assert isinstance(some.images, StoredPictures) and some.ids == (images.ids[2], images.ids[7])
    assert np.array_equal(some.images.read(np.array([1, 0, 1])), all_of(images)[[7, 2, 7]])
    assert np.array_equal(some.images.digests, images.images.digests[[2, 7]])


def test_a_second_start_decodes_nothing(tmp_path, site, decoded, monkeypatch):
    for name in ("a/image100.png", "b/image101.png"):
        (site / name).unlink()
    stored(tmp_path)
    assert len(decoded) == 10
    before = files(tmp_path)
    monkeypatch.setattr(picture_store, "read_content", lambda source: pytest.fail(f"{source} was read"))
    images, _ = stored(tmp_path)
    assert len(images) == 10 and files(tmp_path) == before


def test_images_that_could_not_be_used_are_tried_again(tmp_path, site, decoded):
    stored(tmp_path)
    decoded.clear()
    (store,) = files(tmp_path)
    inode = (tmp_path / "store" / store).stat().st_ino
    stored(tmp_path)
    assert decoded == [b"no image"]
    assert (tmp_path / "store" / store).stat().st_ino == inode, "the file was written again for nothing"
    draw(seed=100).save(site / "a" / "image100.png")
    decoded.clear()
    assert len(stored(tmp_path)[0]) == len(all_of(stored(tmp_path)[0])) == 11 and len(decoded) == 1


def test_content_decides_where_time_or_place_differ(tmp_path, site, decoded):
    images, _ = stored(tmp_path)
    pictures = dict(zip(images.ids, all_of(images), strict=True))
    os.utime(site / "a" / "image000.png", (1, 1))
    (site / "a" / "image001.png").rename(site / "b" / "moved.png")
    draw(seed=50).save(site / "a" / "image002.png")
    (site / "a" / "image003.png").unlink()
    (site / "a" / "image100.png").unlink()
    decoded.clear()
    images, _ = stored(tmp_path)
    assert decoded == [(site / "a" / "image002.png").read_bytes()]
    now = dict(zip(images.ids, all_of(images), strict=True))
    assert np.array_equal(now["a/image000.png"], pictures["a/image000.png"])
    assert np.array_equal(now["b/moved.png"], pictures["a/image001.png"])
    assert np.array_equal(
        now["a/image002.png"], stored(tmp_path, store=False)[0].images[list(images.ids).index("a/image002.png")]
    )
    assert "a/image003.png" not in now


def test_pictures_of_images_that_are_gone_go(tmp_path, site):
    stored(tmp_path)
    (file,) = (path for path in (tmp_path / "store").iterdir() if path.suffix != ".lock")
    picture = stored(tmp_path)[0].images.read(np.array([0])).tobytes()
    assert picture in file.read_bytes()
    (site / "a" / "image000.png").unlink()
    stored(tmp_path)
    assert picture not in file.read_bytes() and b"image000" not in file.read_bytes()


def test_another_decoder_or_size_decodes_anew(tmp_path, site, decoded, monkeypatch):
    stored(tmp_path)
    decoded.clear()
    assert stored(tmp_path, size=16)[0].images.shape == (10, 3, 16, 16) and len(decoded) == 11
    later = {f"{version} of tomorrow": decoder for version, decoder in decoders().items()}
    monkeypatch.setattr(picture_store, "decoders", lambda: later)
    decoded.clear()
    stored(tmp_path)
    assert len(decoded) == 11


def test_only_this_user_may_read_it(tmp_path, site):
    before = os.umask(0)
    try:
        stored(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "store").iterdir()} == {0o600}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[1:],
        lambda content: content[:-30] + bytes(30),
        lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    ],
    ids=["empty", "half", "shifted", "no end", "index"],
)
def test_a_damaged_file_is_made_anew(tmp_path, site, decoded, damage):
    images, _ = stored(tmp_path)
    pictures = all_of(images)
    (file,) = (tmp_path / "store").glob("*.pictures")
    file.write_bytes(damage(file.read_bytes()))
    decoded.clear()
    assert np.array_equal(all_of(stored(tmp_path)[0]), pictures) and len(decoded) == 11


def test_a_damaged_picture_is_noticed_and_the_file_removed(tmp_path, site, decoded):
    pictures = all_of(stored(tmp_path)[0])
    (file,) = (tmp_path / "store").glob("*.pictures")
    content = bytearray(file.read_bytes())
    content[2 * PICTURE_BYTES] ^= 1  # two bytes a value, since one image has 16 bits
    file.write_bytes(content)
    images, _ = stored(tmp_path)
    with pytest.raises(AnchorageError, match="picture 1 .*start again") as raised:
        all_of(images)
    assert raised.value.failure is STATE_UNUSABLE and not file.exists()
    assert np.array_equal(all_of(stored(tmp_path)[0]), pictures)


def test_an_open_file_outlives_its_removal(tmp_path, site):
    images, _ = stored(tmp_path)
    pictures = all_of(images)
    for file in (tmp_path / "store").iterdir():
        file.unlink()
    assert np.array_equal(all_of(images), pictures)


KILLED = """
import os, sys
from pathlib import Path
from anchorage.learning.data import picture_store, reading
from test_data_picture_store import stored
reading.IN_MEMORY_BYTES, original = 0, picture_store.PictureWriter.{hook}
def killed(writer, *arguments):
    original(writer, *arguments)
    if len(writer.entries) >= 5:
        writer._file.flush()
        os._exit(9)
picture_store.PictureWriter.{hook} = killed
stored(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("hook", ["append", "finish"])
def test_a_kill_leaves_nothing_that_counts(tmp_path, site, decoded, hook):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED.format(hook=hook), tmp_path], env=environment, check=False)
    assert killed.returncode == 9
    (partial,) = files(tmp_path)
    assert partial.endswith(".partial") and (tmp_path / "store" / partial).stat().st_size >= 5 * PICTURE_BYTES
    fill(tmp_path / "other" / "a", 2)
    stored(tmp_path, name="other")
    assert not (tmp_path / "store" / partial).exists(), "what nobody writes any more goes with the next set"
    images, _ = stored(tmp_path)
    assert np.array_equal(all_of(images), stored(tmp_path, store=False)[0].images)
    assert not [name for name in files(tmp_path) if name.endswith(".partial")]


def test_two_at_once_decode_once(tmp_path, site, decoded):
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: stored(tmp_path), range(2)))
    assert len(decoded) == 11 + 1, "the image that cannot be used is tried by both"
    assert np.array_equal(*(all_of(images) for images, _ in results))


def test_sets_that_were_not_used_for_longest_go(tmp_path):
    for name in ("one", "two", "three"):
        fill(tmp_path / name / "a", 10)
    store = PictureStore(tmp_path / "store", most=2 * 10 * PICTURE_BYTES + 8000)
    names = {}
    for name in ("one", "two"):
        stored(tmp_path, name=name, store=store)
        (names[name],) = set(files(tmp_path)) - set(names.values())
    for age, name in ((100, "two"), (200, "one")):
        os.utime(tmp_path / "store" / names[name], (age, age))
    stored(tmp_path, name="two", store=store)  # is used again
    stored(tmp_path, name="three", store=store)
    assert names["one"] not in files(tmp_path) and names["two"] in files(tmp_path) and len(files(tmp_path)) == 2
    store = PictureStore(tmp_path / "store", most=1)
    stored(tmp_path, name="one", store=store)
    assert len(files(tmp_path)) == 1, "the set itself may be larger"


def test_a_full_disk_leaves_images_in_memory_where_they_fit(tmp_path, site, monkeypatch, caplog):
    monkeypatch.setattr(picture_store.shutil, "disk_usage", lambda folder: Usage)
    images, _ = stored(tmp_path)
    assert isinstance(images.images, np.ndarray) and "do not fit" in caplog.text
    monkeypatch.setattr(reading, "available_bytes", lambda: 100)
    with pytest.raises(AnchorageError, match="of memory.*do not fit in") as raised:
        stored(tmp_path)
    assert raised.value.failure is IMAGES_EXCEED_MEMORY


class Usage:
    free = 100


def test_a_folder_that_cannot_be_used_is_named(tmp_path, site):
    (tmp_path / "store").write_text("")
    with pytest.raises(AnchorageError, match=f"{tmp_path}/store") as raised:
        stored(tmp_path)
    assert raised.value.failure is STATE_UNUSABLE


def test_bad_images_are_refused_as_those_in_memory(tmp_path, site):
    with pytest.raises(AnchorageError, match="3 of 13 images") as raised:
        stored(tmp_path, on_bad_image="Refuse")
    assert raised.value.failure is BAD_IMAGES


def test_few_images_stay_in_memory(tmp_path, site, monkeypatch):
    monkeypatch.setattr(reading, "IN_MEMORY_BYTES", 13 * PICTURE_BYTES)
    assert isinstance(stored(tmp_path)[0].images, np.ndarray) and not (tmp_path / "store").exists()
    monkeypatch.setattr(reading, "available_bytes", lambda: 52 * PICTURE_BYTES - 4)
    assert isinstance(stored(tmp_path)[0].images, StoredPictures), (
        "half of the memory is left to training, of two bytes a value"
    )


def test_digits_are_in_memory_already(tmp_path):
    section = SiloData(format="Digits")
    images, _ = read(section, tmp_path, model_of(tuple("0123456789")), 1, store=PictureStore(tmp_path / "store"))
    assert isinstance(images.images, np.ndarray) and not (tmp_path / "store").exists()
