"""Nothing of a hospital's names, tables and tags leaves it, whatever is wrong with its images: CLINICAL 1.7 for the formats of `telltale_sites`."""

import io
import json
import logging
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from real_silo import MODEL, Silo, setup_of
from silo_fakes import MANY, FakeLink, changed_setup, terms_of
from telltale_sites import CLASSES, SITES, TRAINABLE, VOLUME_SITES, Words, folders

from anchorage.api.data import SiloData
from anchorage.api.errors import CATALOGUE, AnchorageError, silo
from anchorage.api.method import Local, MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.learning.data import BadImage, pseudonyms, read
from anchorage.learning.data.held_out import describe_held_out
from anchorage.learning.data.listing import REASONS
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.grpc.convert import encode_announcement
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.pki import Authority
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo import kept_output, trainer
from anchorage_silo.audit import AUDIT_FILE, AuditLog
from anchorage_silo.commands import carry_out
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import pictures_folder, trainer_folder
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.kept_output import OUTPUT_FILE, keep_output
from anchorage_silo.known_images import KEY_FILE, TABLE_FILE, KnownImages
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.redaction import IMAGE_LIBRARIES, log_to_agent, places_of, redacted_message
from anchorage_silo.review import Review
from anchorage_silo.state import AgentState
from anchorage_silo.trainer import build_learner, report_failure

METHOD = resolve(MethodSpec(name="FedAvg", local=Local(epochs=1)))
TWO_CLASSES = MODEL.model_copy(update={"task": Classification(classes=CLASSES)})
VOLUMES = ModelDescription.model_validate(
    {
        "network": "SmallUNet",
        "channels": 1,
        "volume": {"spacing": ("1", "1", "1"), "patch": (8, 8, 8)},
        "intensity": {"zScore": {}},
        "task": {"segmentation": {"classes": ("background", "box")}},
    }
)


@pytest.fixture(scope="module")
def initial() -> ModelBytes:
    return build_server_learner(model=TWO_CLASSES, method=METHOD, seed=5).initialise()


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Put the loggers back as they were."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in IMAGE_LIBRARIES}
    yield
    root.handlers[:] = before
    root.setLevel(level)
    for name, known in levels.items():
        logging.getLogger(name).setLevel(known)


@dataclass
class Outside(FakeLink):
    """A server that keeps what failures say, and all else that a trainer's process hands out."""

    folder: Path
    errors_reported: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.frames = io.BytesIO()
        self.writer = FrameWriter(self.frames)
        self.records = io.StringIO()

    def listen(self) -> None:
        """Take every record of every logger, at every level, as the trainer's process begins."""
        log_to_agent(self.writer)
        every = logging.StreamHandler(self.records)
        every.setFormatter(Outspoken("%(name)s %(message)s %(args)s"))
        logging.getLogger().addHandler(every)
        logging.getLogger().setLevel(logging.DEBUG)

    def fail(self, task: str, code: str, message: str) -> None:
        self.errors_reported.append(f"{task} {code} {message}")

    def failures(self) -> list[AnchorageError]:
        """Return what the agent is told went wrong."""
        self.frames.seek(0)
        setups = []
        while (frame := read_frame(self.frames)) is not None:
            if frame[0] is Kind.FAILURE:
                description = json.loads(frame[1])
                setups.append(AnchorageError(CATALOGUE[description["code"]], description["message"]))
        return setups

    def everything(self) -> bytes:
        """Return all that left, with what the agent makes of it: what it says, its log, its audit log, and what the server learns."""
        logging.getLogger().handlers[0].flush()
        audit = AuditLog(self.folder / AUDIT_FILE)
        gate = OutboundGate(
            self, Policy(), audit, terms_of("FedAvg", needed=MANY), AgentState(self.folder / "silo.crt")
        )
        for error in self.failures():
            gate.fail("1.train", error.code, error.message)
            self.errors_reported.append(str(error))
        audit.close()
        texts = (self.records.getvalue(), *self.errors_reported, (self.folder / AUDIT_FILE).read_text())
        return self.frames.getvalue() + "\n".join(texts).encode(errors="surrogateescape")


class Outspoken(logging.Formatter):
    """Writes exceptions as the trainer's log does, by their places."""

    def formatException(self, ei: object) -> str:
        return places_of(ei[1])  # type: ignore[index]


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


def setup_at(
    folder: Path, initial: ModelBytes, section: SiloData, model: ModelDescription = TWO_CLASSES, **config: str
) -> Setup:
    setup = setup_of(folder / "state", initial, "Partial", section, METHOD)
    run = RunDescription.model_validate_json(setup.run).model_copy(update={"model": model})
    return changed_setup(setup, run=run.to_json(), dataRoot=str(folder / "data"), **config)


def work(setup: Setup, initial: ModelBytes, outside: Outside) -> None:
    """Read the images, train once and score a model, as the trainer's process does."""
    outside.listen()
    try:
        learner, samples, _ = build_learner(setup)
        model = np.frombuffer(b"".join(initial.chunk(i) for i in range(len(initial.manifest.digests))), np.uint8)
        task = Task("1.train", TaskKind.TRAIN, 1, initial.manifest)
        announcement = learner.train(task, model, lambda nbytes: np.empty(nbytes, np.uint8), lambda done, total: 0)
        outside.writer.write(Kind.ANNOUNCEMENT, encode_announcement(announcement))
        outside.writer.write_json(Kind.READY, samples=samples)
    except AnchorageError as error:
        report_failure(outside.writer, "", error)


@pytest.mark.parametrize("on_bad", ["Refuse", "Skip"])
@pytest.mark.parametrize("name", SITES)
def test_no_word_of_a_site_leaves_it(
    name: str, on_bad: str, tmp_path: Path, initial: ModelBytes, outside: Outside
) -> None:
    words = Words(name)
    (tmp_path / "data").mkdir()
    section = SITES[name](tmp_path / "data", words).model_copy(update={"on_bad_image": on_bad})
    setup = setup_at(tmp_path, initial, section)
    work(setup, initial, outside)
    texts = outside.everything()
    assert words.found_in(texts) == []
    assert str(tmp_path / "data").encode() not in texts
    table = trainer_folder(Path(setup.plain["state"])) / TABLE_FILE
    assert table.stat().st_mode & 0o777 == 0o600
    assert bool(outside.failures()) is not (name in TRAINABLE and on_bad == "Skip")
    assert words.found_in(table.read_text()), "the hospital can read what was withheld"


@pytest.fixture(scope="module")
def initial_of_volumes() -> ModelBytes:
    return build_server_learner(model=VOLUMES, method=METHOD, seed=5).initialise()


@pytest.mark.parametrize("on_bad", ["Refuse", "Skip"])
@pytest.mark.parametrize("name", VOLUME_SITES)
def test_no_word_of_a_site_of_volumes_leaves_it(
    name: str, on_bad: str, tmp_path: Path, initial_of_volumes: ModelBytes, outside: Outside
) -> None:
    words = Words(name)
    (tmp_path / "data").mkdir()
    section = VOLUME_SITES[name](tmp_path / "data", words).model_copy(update={"on_bad_image": on_bad})
    setup = setup_at(tmp_path, initial_of_volumes, section, VOLUMES)
    work(setup, initial_of_volumes, outside)
    texts = outside.everything()
    assert words.found_in(texts) == []
    assert str(tmp_path / "data").encode() not in texts
    table = trainer_folder(Path(setup.plain["state"])) / TABLE_FILE
    assert words.found_in(table.read_text()), "the hospital can read what was withheld"
    assert bool(outside.failures()) is (on_bad == "Refuse")


@pytest.fixture
def refused(tmp_path: Path, initial: ModelBytes, outside: Outside) -> tuple[Setup, str]:
    """A silo whose images were refused, and what it said."""
    (tmp_path / "data").mkdir()
    setup = setup_at(tmp_path, initial, folders(tmp_path / "data", Words("a site")))
    work(setup, initial, outside)
    (error,) = outside.failures()
    return setup, str(error)


def asked(setup: Setup, fingerprint: str | None = None, output: str = "text") -> None:
    config = SiloConfig.model_validate_json(setup.config)
    carry_out(Namespace(command="images", fingerprint=fingerprint, output=output), config)


def test_an_image_is_named_by_place_and_fingerprint_and_resolved_at_the_hospital(
    refused: tuple[Setup, str], capsys: pytest.CaptureFixture[str]
) -> None:
    setup, output = refused
    known = KnownImages.read(Path(setup.plain["state"])).images
    first = known[0]
    assert output.startswith(f"ANC-1203 BadImages: {len(known)} of ")
    assert (
        f"image {first.place} of {first.of} ({first.fingerprint}) {first.reason}: {REASONS[first.reason]}, " in output
    )
    assert "anchorage-silo images" in output and "fedctl data check" in output
    assert {each.reason for each in known} >= {"Damaged", "NotAnImage", "Empty", "Blank", "OutsideFolder"}
    capsys.readouterr()
    asked(setup, first.fingerprint[:6].upper())
    assert (
        capsys.readouterr().out
        == f"{first.fingerprint}  image {first.place} of {first.of}  {first.reason}  {first.id}: {first.detail}\n"
    )
    asked(setup, output="json")
    shown = json.loads(capsys.readouterr().out)
    assert [each["fingerprint"] for each in shown["images"]] == [each.fingerprint for each in known]
    assert any("ANC-1203" in remark and first.id in remark for remark in shown["remarks"])


@pytest.mark.parametrize("fingerprint", ["0123456789", "", "zz\x1b[2J"])
def test_a_fingerprint_that_nobody_has_is_a_failure(refused: tuple[Setup, str], fingerprint: str) -> None:
    with pytest.raises(AnchorageError) as raised:
        asked(refused[0], fingerprint)
    assert raised.value.failure is silo.FINGERPRINT_UNKNOWN and "\x1b" not in str(raised.value)


def test_an_agent_that_has_read_nothing_yet_and_a_damaged_table_are_told(tmp_path: Path, initial: ModelBytes) -> None:
    setup = setup_at(tmp_path, initial, SiloData(format="Digits"))
    with pytest.raises(AnchorageError, match="ANC-2231.*read no images yet"):
        asked(setup)
    trainer_folder(tmp_path / "state").mkdir()
    for content in ("{", "[1]\n", '{"fingerprint": 3}\n', '{"place": "x"}\n'):
        (trainer_folder(tmp_path / "state") / TABLE_FILE).write_text(content)
        with pytest.raises(AnchorageError, match="ANC-2202.*not as it was written"):
            asked(setup)


def test_images_without_fault_leave_an_empty_table(
    tmp_path: Path, initial: ModelBytes, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = changed_setup(setup_of(tmp_path / "state", initial), labels="All")
    run = RunDescription.model_validate_json(setup.run)
    build_learner(changed_setup(setup, run=run.model_copy(update={"method": METHOD}).to_json()))
    asked(setup)
    assert capsys.readouterr().out == "no image that messages or logs speak of\n"


def test_the_key_is_made_once_and_another_site_has_other_fingerprints(
    refused: tuple[Setup, str], tmp_path: Path, initial: ModelBytes
) -> None:
    setup, _ = refused
    state = Path(setup.plain["state"])
    key, known = trainer_folder(state) / KEY_FILE, KnownImages.read(state)
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    content = key.read_bytes()
    with pytest.raises(AnchorageError, match="ANC-1203"):
        build_learner(setup)
    assert key.read_bytes() == content and KnownImages.read(state).images == known.images
    other = changed_setup(setup, state=str(tmp_path / "other"))
    with pytest.raises(AnchorageError, match="ANC-1203"):
        build_learner(other)
    theirs = KnownImages.read(tmp_path / "other").images
    assert [each.id for each in theirs] == [each.id for each in known.images]
    assert not {each.fingerprint for each in theirs} & {each.fingerprint for each in known.images}


@pytest.mark.parametrize("treatment", ["Refuse", "Skip"])
def test_images_that_the_federation_is_scored_on_are_not_named(
    treatment: str, tmp_path: Path, initial: ModelBytes, outside: Outside
) -> None:
    words = Words("held out")
    (tmp_path / "data").mkdir()
    section = folders(tmp_path / "data", words).model_copy(update={"on_bad_image": "Skip"})
    setup = setup_at(tmp_path, initial, section)
    images, _ = read(section, tmp_path / "data", TWO_CLASSES, 5)
    run = RunDescription.model_validate_json(setup.run)
    held = describe_held_out([images.select([0, 5])], bytes.fromhex(run.data_key), treatment)
    work(changed_setup(setup, run=run.model_copy(update={"held_out": held}).to_json()), initial, outside)
    texts = outside.everything()
    assert (
        words.found_in(texts) == []
        and b"images are those that the federation is scored on, too, such as image " in texts
    )
    assert b"patients or lesions have the same names" in texts
    known = KnownImages.read(Path(setup.plain["state"]))
    assert {images.ids[0], images.ids[5]} <= {each.id for each in known.images if each.reason == "HeldOut"}
    named = {group for group, id in zip(images.groups, images.ids, strict=True) if group != id}
    assert any(group in remark for group in named for remark in known.remarks)


def test_ids_and_patients_of_a_silo_s_images_are_pseudonyms_in_its_own_memory(
    tmp_path: Path, initial: ModelBytes, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, leaks = Words("ids"), []
    (tmp_path / "data").mkdir()
    section = folders(tmp_path / "data", words).model_copy(update={"on_bad_image": "Skip"})
    build = trainer._build_silo_learner
    monkeypatch.setattr(
        trainer, "_build_silo_learner", lambda *arguments: (leaks.append(arguments[3]), build(*arguments))[1]
    )
    work(setup_at(tmp_path, initial, section), initial, outside)
    (images,) = leaks
    assert words.found_in(" ".join((*images.ids, *images.groups))) == []
    assert len(set(images.ids)) == len(images) and len(set(images.groups)) == 3, "two patients, and one image of nobody"


def test_of_an_exception_types_and_places_leave(outside: Outside) -> None:
    words = Words("exception")
    outside.listen()
    log = logging.getLogger("anchorage.learning.some")
    try:
        try:
            open(f"/nowhere/{words('patient')}")  # noqa: SIM115, PTH123
        except OSError as error:
            raise ValueError(words("value")) from error
    except ValueError as error:
        log.exception("a hook raised")
        places = places_of(error)
    logging.getLogger("acme.decoder").critical(words("library"))
    assert "ValueError at test_of_an_exception_types_and_places_leave (" in places and "FileNotFoundError" in places
    frames = outside.frames.getvalue()
    assert b"a hook raised: ValueError at " in frames and words.found_in(frames + places.encode()) == []


def test_messages_without_content_stay_as_they_are_and_unknown_ones_become_the_title() -> None:
    error = AnchorageError(silo.IMAGES_UNLABELLED, "silo a has labels: All, but 3 of 3 images have none")
    assert redacted_message(error) == error.message
    for failure in CATALOGUE.values():
        if not failure.code.startswith(("ANC-13", "ANC-21", "ANC-22", "ANC-1206", "ANC-1207", "ANC-1212")):
            assert "Meier" not in redacted_message(AnchorageError(failure, "Meier.png")), failure.code
    piece = "decoder acme.Npy (npy.py:3): picture raised KeyError at npy.py:7: 'Meier'"
    assert redacted_message(AnchorageError(CATALOGUE["ANC-1312"], piece)) == piece.removesuffix(": 'Meier'")
    text = "reader acme.Rows (rows.py:3): listing returned 'Meier'; due: a Listing"
    assert redacted_message(AnchorageError(CATALOGUE["ANC-1312"], text)) == text.replace("'Meier'", "text")


def test_a_reason_of_another_package_is_not_repeated() -> None:
    message = pseudonyms.Pseudonyms(bytes(32)).name_bad(BadImage("Meier.png", "Patient Meier", "Meier"), 4, 9)
    assert message.startswith("image 5 of 9 (") and message.endswith(") is refused by its decoder")


def test_what_people_review_names_no_folder(tmp_path: Path, initial: ModelBytes) -> None:
    words = Words("review")
    (tmp_path / "data").mkdir()
    setup = setup_at(tmp_path, initial, folders(tmp_path / "data", words))
    authority = Authority.create(tmp_path / "authority", "derm").certificate_path
    config = SiloConfig.model_validate_json(changed_setup(setup, authority=str(authority)).config)
    review = Review.of(setup.run, config, Policy())
    assert words.found_in("\n".join(review.words()) + review.model_dump_json()) == []


@pytest.mark.integration
def test_a_real_trainer_s_process_hands_out_no_word(
    tmp_path: Path, initial: ModelBytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The process is confined and writes to a pipe; what it prints is kept in a file that stays."""
    words = Words("process")
    (tmp_path / "data").mkdir()
    section = folders(tmp_path / "data", words).model_copy(update={"on_bad_image": "Skip"})
    setup = setup_at(tmp_path, initial, section)
    caplog.set_level(logging.DEBUG)  # from here on: drawing, too, writes tags into the log
    playing = Silo(setup)
    try:
        announcement, update = playing.round(1, initial)
    finally:
        playing.trainer.close()
    logged = "".join(f"{record.getMessage()} {record.exc_text}" for record in caplog.records)
    assert "trainer: the images: " in logged, "the log says what was left out, in numbers"
    assert words.found_in(logged) == [] and words.found_in(repr(playing.link.messages)) == []
    assert words.found_in(encode_announcement(announcement) + update) == []
    state = tmp_path / "state"
    files = [file for file in state.rglob("*") if file.is_file() and words.found_in(file.read_bytes())]
    headers = {file.name for file in pictures_folder(state).glob("*.headers")}
    assert {file.name for file in files} <= {TABLE_FILE, OUTPUT_FILE, *headers}


def test_what_a_trainer_prints_is_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_output, "MOST_BYTES", 100)
    keep_output(io.BytesIO(b"".join(b"%029d\n" % number for number in range(10))), tmp_path)
    contents = {file.name: file.read_text().split() for file in tmp_path.iterdir()}
    assert contents == {"trainer.log": ["9".zfill(29)], "trainer.log.1": [f"{number:029d}" for number in (6, 7, 8)]}


def test_what_cannot_be_kept_is_said_once_and_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_output(io.BytesIO(b"Meier\n" * 3), tmp_path / "gone")
    assert caplog.text.count("what the trainer process prints is lost") == 1 and "Meier" not in caplog.text


def test_no_more_images_are_remembered_than_the_table_is_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudonyms, "MOST_IMAGES", 2)
    names = pseudonyms.Pseudonyms(bytes(32))
    for row in range(5):
        names.remember(BadImage(f"{row}" * 3000, "Damaged", "x" * 3000), row, 5)
    assert [image.place for image in names.images] == [1, 2]
    assert all(len(image.id) + len(image.detail) < 2000 for image in names.images)
