"""Headers of files in the store: a second start opens only what is new."""

import logging
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from drawn_scans import write_dicom
from read_sections import model_of

pytest.importorskip("pydicom")

from anchorage.api.data import SiloData
from anchorage.learning.data import headers, read
from anchorage.learning.data.picture_store import PictureStore
from anchorage.learning.data.stored_headers import headers_stored_in


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Six slices of two patients."""
    pixels = np.arange(0, 64_000, 1_000, dtype=np.uint16).reshape(8, 8)
    for row in range(6):
        folder = tmp_path / "data" / "site" / "ab"[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        write_dicom(folder / f"I{row}", pixels + row, PatientID=f"patient {row // 3}")
    return tmp_path / "data" / "site"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose header was read."""
    names: list[str] = []
    original = headers._header

    def header(state: headers.FileState) -> headers.Header | None:
        names.append(Path(state.path).name)
        return original(state)

    monkeypatch.setattr(headers, "_header", header)
    return names


def start(site: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Read the images as a process does that has just started; return whose each is."""
    monkeypatch.setattr(headers, "_known", {})
    store = PictureStore(site.parents[1] / "store")
    section = SiloData(format="DicomFolder", claim_name="site")
    images, _ = read(section, site.parent, model_of(("a", "b"), 8), 1, store=store)
    return dict(zip(images.ids, images.groups, strict=True))


def file_of(site: Path) -> Path:
    (file,) = (site.parents[1] / "store").glob("*.headers")
    return file


def test_a_second_start_opens_only_what_is_new(site: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = start(site, monkeypatch)
    assert sorted(opened) == [f"I{row}" for row in range(6)] and set(first.values()) == {"patient 0", "patient 1"}
    assert stat.S_IMODE(file_of(site).stat().st_mode) == 0o600
    opened.clear()
    assert start(site, monkeypatch) == first and opened == []
    write_dicom(
        site / "a" / "I0", np.arange(0, 7_200, 100, dtype=np.uint16).reshape(8, 9) * 9, PatientID="another patient"
    )
    (site / "b" / "I5").unlink()
    changed = start(site, monkeypatch)
    assert opened == ["I0"] and changed == {
        **{k: v for k, v in first.items() if k != "b/I5"},
        "a/I0": "another patient",
    }
    assert b"I5" not in file_of(site).read_bytes()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"rules":1,"decoders":[],"headers":7}', b"\xff", None])
def test_headers_that_are_damaged_or_of_another_version_are_read_again(
    content: bytes | None,
    site: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = start(site, monkeypatch)
    file = file_of(site)
    stored = file.read_bytes()
    file.write_bytes(stored.replace(b'"patient":', b'"person":') if content is None else content)
    opened.clear()
    with caplog.at_level(logging.DEBUG):
        assert start(site, monkeypatch) == first and len(opened) == 6
    assert "patient" not in caplog.text and file.read_bytes() == stored


def test_a_file_that_could_not_be_read_is_tried_again(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a share fails for a moment: size and time of the file are as before."""
    file, store = site / "a" / "I0", site.parents[1] / "x.headers"
    content, status = file.read_bytes(), file.stat()
    headers_read = []
    for beginning in (bytes(200), content[:200]):
        file.write_bytes(beginning + content[200:])
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        monkeypatch.setattr(headers, "_known", {})
        with headers_stored_in(store):
            headers_read += headers.read_headers([file, site / "a" / "I2"])
    before, other, after, same = headers_read
    assert before is None and after is not None and after.patient == "patient 0" and other == same


def test_a_store_that_cannot_be_written_only_costs_time(
    site: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (site.parents[1] / "store").write_text("a file in the place of the folder")
    first = start(site, monkeypatch)
    assert len(first) == 6 and "read again at the next start" in caplog.text
    opened.clear()
    assert start(site, monkeypatch) == first and len(opened) == 6
