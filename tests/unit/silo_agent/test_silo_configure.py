import os
from pathlib import Path

import pytest
import yaml

from anchorage.api.errors.commands import WORKDIR_UNUSABLE
from anchorage.api.errors.documents import MISSING_FIELD, WRONG_FORM
from anchorage.api.errors.silo import CONFIGURED_FOR_ANOTHER
from anchorage.api.single import read_document
from anchorage.transport.pki import Authority
from anchorage_silo.config import SiloConfig
from anchorage_silo.main import main


@pytest.fixture
def enrolment(tmp_path: Path) -> dict[str, str]:
    authority = Authority.create(tmp_path / "authority", "derm")
    return {
        "federation": "derm",
        "silo": "hospital-a",
        "labels": "Partial",
        "server": "derm.example.org:8443",
        "enrolment": "derm.example.org:8444",
        "authority": authority.certificate_path.read_text(),
        "token": "a-token",
    }


def configure(tmp_path: Path, enrolment: dict[str, str], images: str = "/srv/images") -> Path:
    (tmp_path / "enrolment.yaml").write_text(yaml.safe_dump({"enrolment": enrolment}))
    out, state = tmp_path / "etc", tmp_path / "state"
    main(["configure", str(tmp_path / "enrolment.yaml"), "--images", images, "--out", str(out), "--state", str(state)])
    return out


def test_an_invitation_becomes_the_agent_s_files(
    tmp_path: Path, enrolment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = configure(tmp_path, enrolment)
    config = read_document(out / "silo.yaml", SiloConfig)
    assert (config.silo, config.federation, config.labels) == ("hospital-a", "derm", "Partial")
    assert (config.server, config.enrolment) == (enrolment["server"], enrolment["enrolment"])
    assert config.data is not None and config.data_root / config.data.claim_name == Path("/srv/images")
    assert config.token is not None and config.token.read_text() == enrolment["token"]
    assert config.token.stat().st_mode & 0o777 == 0o600
    assert config.authority.read_text() == enrolment["authority"]
    printed = capsys.readouterr().out
    assert f"--config {out / 'silo.yaml'}" in printed and enrolment["token"] not in printed


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"normal/a.png": b"\x89PNG", "sick/b.png": b"\x89PNG"}, ("ImageFolder", None)),
        ({"1/2/3": bytes(128) + b"DICM", "1/2/4": bytes(128) + b"DICM", "DICOMDIR": b"no"}, ("DicomFolder", None)),
        ({"findings.csv": b"image,label", "a.png": b"\x89PNG"}, ("CsvManifest", "findings.csv")),
        (
            {"one.csv": b"", "other.csv": b"", ".hidden": bytes(128) + b"DICM", "a.png": b"\x89PNG"},
            ("ImageFolder", None),
        ),
        ({}, ("ImageFolder", None)),
        (None, ("ImageFolder", None)),
    ],
)
def test_the_format_is_that_of_what_lies_there(
    tmp_path: Path, enrolment: dict[str, str], files: dict[str, bytes] | None, expected: tuple[str, str | None]
) -> None:
    folder = tmp_path / "pacs"
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if files == {}:
        folder.mkdir()
    config = read_document(configure(tmp_path, enrolment, images=str(folder)) / "silo.yaml", SiloConfig)
    assert config.data is not None and (config.data.format, config.data.manifest) == expected


def test_what_cannot_be_opened_ends_nothing(tmp_path: Path, enrolment: dict[str, str]) -> None:
    (tmp_path / "pacs").mkdir()
    os.mkfifo(tmp_path / "pacs" / "queue")
    for name in "ab":
        (tmp_path / "pacs" / name).write_bytes(bytes(128) + b"DICM")
    config = read_document(configure(tmp_path, enrolment, images=str(tmp_path / "pacs")) / "silo.yaml", SiloConfig)
    assert config.data is not None and config.data.format == "DicomFolder"


def test_a_further_invitation_changes_nothing_that_the_hospital_wrote(
    tmp_path: Path, enrolment: dict[str, str]
) -> None:
    out = configure(tmp_path, enrolment)
    written = (out / "silo.yaml").read_text().replace("ImageFolder", "DicomFolder")
    (out / "silo.yaml").write_text(written)
    configure(tmp_path, {**enrolment, "token": "another"})
    assert (out / "silo.yaml").read_text() == written
    assert (out / "token").read_text() == "another"


@pytest.mark.parametrize(
    ("field", "value"), [("silo", "hospital-b"), ("federation", "chest"), ("server", "chest.example.org:8443")]
)
def test_the_files_of_another_silo_stay(
    tmp_path: Path, enrolment: dict[str, str], field: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = configure(tmp_path, enrolment)
    with pytest.raises(SystemExit) as ended:
        configure(tmp_path, {**enrolment, field: value, "token": "another"})
    assert ended.value.code == CONFIGURED_FOR_ANOTHER.exit_code
    message = capsys.readouterr().err
    assert CONFIGURED_FOR_ANOTHER.code in message and value in message
    assert (out / "token").read_text() == enrolment["token"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("silo", "../b"),
        ("server", "no address"),
        ("authority", "no certificate"),
        ("token", "two words"),
        ("token", ""),
    ],
)
def test_what_is_no_invitation_is_refused_without_its_token(
    tmp_path: Path, enrolment: dict[str, str], field: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        configure(tmp_path, {**enrolment, field: value})
    message = capsys.readouterr().err
    assert ended.value.code == WRONG_FORM.exit_code
    assert WRONG_FORM.code in message and f"enrolment.{field}" in message and enrolment["token"] not in message
    assert not (tmp_path / "etc").exists()


def test_an_invitation_without_a_field_is_refused(
    tmp_path: Path, enrolment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        configure(tmp_path, {field: value for field, value in enrolment.items() if field != "token"})
    assert MISSING_FIELD.code in capsys.readouterr().err


def test_a_folder_that_is_a_file(tmp_path: Path, enrolment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc").write_text("")
    with pytest.raises(SystemExit) as ended:
        configure(tmp_path, enrolment)
    assert ended.value.code == WORKDIR_UNUSABLE.exit_code
    assert WORKDIR_UNUSABLE.code in capsys.readouterr().err


def test_relative_folders_are_written_whole(
    tmp_path: Path, enrolment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = configure(tmp_path, enrolment, images="pictures/skin")
    config = read_document(out / "silo.yaml", SiloConfig)
    assert config.data_root == tmp_path / "pictures" and config.data is not None and config.data.claim_name == "skin"


@pytest.mark.parametrize(
    ("images", "claim"), [("MR Images", "srv"), ("Bilder_1/2026", "2026"), ("scans/Knee MR", "scans")]
)
def test_folders_of_any_name_are_found_again(
    tmp_path: Path, enrolment: dict[str, str], images: str, claim: str
) -> None:
    out = configure(tmp_path, enrolment, images=f"/srv/{images}")
    config = read_document(out / "silo.yaml", SiloConfig)
    assert config.data is not None and config.data.claim_name == claim
    assert config.data_root / claim / config.data.path == Path("/srv") / images


def test_images_below_no_folder_that_can_be_named_are_refused(
    tmp_path: Path, enrolment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        configure(tmp_path, enrolment, images="/My Images")
    message = capsys.readouterr().err
    assert WRONG_FORM.code in message and "/My Images" in message and not (tmp_path / "etc").exists()
