"""What passes between an agent and its trainer: mapped buffers and frames."""

from pathlib import Path

import numpy as np
import pytest
from silo_fakes import LAYOUT, FakeLink, model_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.engine.silo import SiloWorker
from anchorage.transport.messages import Assigned, Permit
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.frames import FrameWriter, Kind, read_frame
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.null_learner import NullLearner

ONE = model_of(1.0)


def expected(value: float) -> Manifest:
    arrays = model_of(value).arrays()
    arrays["weight"] += np.float32(0.5)
    arrays["bn.running_var"] += np.float32(0.5)
    return ModelBytes.from_arrays(LAYOUT, arrays).manifest


class TestMappedBuffers:
    def test_a_restarted_agent_finds_what_it_received_and_announced(self, tmp_path: Path) -> None:
        link, task = FakeLink(ONE), train_task(ONE)
        learner = NullLearner(LAYOUT, LAYOUT, 0.5, 7)
        SiloWorker(link, learner, MappedBuffers(tmp_path)).handle(Assigned(task))
        fetched = list(link.fetched)
        reopened = MappedBuffers(tmp_path)
        worker = SiloWorker(link, NullLearner(LAYOUT, LAYOUT, 99.0, 7), reopened)
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        assert [s for s in link.messages if s[0] == "announce"] == [("announce", task.id)] * 2
        assert Manifest.of(LAYOUT.digest, np.frombuffer(link.updates[task.id], np.uint8)) == expected(1.0)
        reopened.model(task.kind).receive(ONE.manifest)
        assert reopened.model(task.kind).missing() == ()
        assert link.fetched == fetched

    def test_a_damaged_update_is_trained_again(self, tmp_path: Path) -> None:
        link, task = FakeLink(ONE), train_task(ONE)
        SiloWorker(link, NullLearner(LAYOUT, LAYOUT, 99.0, 7), MappedBuffers(tmp_path)).handle(Assigned(task))
        with (tmp_path / "trainer" / "update.bin").open("r+b") as file:
            file.write(b"\xff")
        (tmp_path / "announced.bin").write_bytes((tmp_path / "announced.bin").read_bytes())
        SiloWorker(link, NullLearner(LAYOUT, LAYOUT, 0.5, 7), MappedBuffers(tmp_path)).handle(Assigned(task))
        assert link.announcements[task.id].update == expected(1.0)

    def test_an_update_made_under_other_terms_is_trained_again(self, tmp_path: Path) -> None:
        link, task = FakeLink(ONE), train_task(ONE)
        for terms, step in ((b"clipNorm: 9", 99.0), (b"clipNorm: 1", 0.5)):
            worker = SiloWorker(link, NullLearner(LAYOUT, LAYOUT, step, 7), MappedBuffers(tmp_path, terms=terms))
            worker.handle(Assigned(task))
        assert link.announcements[task.id].update == expected(1.0)

    @pytest.mark.parametrize("content", [b"", b"\xff\xff\xff"])
    def test_a_torn_announcement_is_forgotten(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "announced.bin").write_bytes(content)
        assert MappedBuffers(tmp_path).find_announcement(train_task(ONE).id) is None

    def test_an_update_whose_announcement_was_damaged_is_trained_again(self, tmp_path: Path) -> None:
        """Another number of images would be another weight."""
        worker = SiloWorker(FakeLink(ONE), NullLearner(LAYOUT, LAYOUT, 0.5, 7), MappedBuffers(tmp_path))
        worker.handle(Assigned(train_task(ONE)))
        announced = tmp_path / "announced.bin"
        content = announced.read_bytes()
        assert MappedBuffers(tmp_path).find_announcement(train_task(ONE).id) is not None
        for at in range(len(content)):
            announced.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert MappedBuffers(tmp_path).find_announcement(train_task(ONE).id) is None

    def test_a_folder_that_cannot_be_written_has_its_code(self, tmp_path: Path) -> None:
        buffers = MappedBuffers(tmp_path / "missing")
        with pytest.raises(AnchorageError, match="ANC-2202"):
            buffers.update(10)
        with pytest.raises(AnchorageError, match="ANC-2202"):
            buffers.model(train_task(ONE).kind).receive(ONE.manifest)

    def test_a_model_of_another_size_takes_the_file_over(self, tmp_path: Path) -> None:
        buffers = MappedBuffers(tmp_path)
        assert buffers.update(100).nbytes == 100
        assert buffers.update(5000).nbytes == 5000
        assert (tmp_path / "trainer" / "update.bin").stat().st_size == 5000
        assert buffers.update(0).nbytes == 0


class TestFrames:
    def test_frames_come_back_as_they_were_written_until_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "frames"
        with path.open("wb") as stream:
            writer = FrameWriter(stream)
            writer.write(Kind.TASK, b"abc")
            writer.write_json(Kind.FAILURE, kind="Train", code="c")
            writer.write(Kind.CANCEL)
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with path.open("rb") as stream:
            assert read_frame(stream) == (Kind.TASK, b"abc")
            assert read_frame(stream) == (Kind.FAILURE, b'{"kind": "Train", "code": "c"}')
            assert read_frame(stream) is None

    def test_what_is_no_frame_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "frames"
        path.write_bytes(b"\xff\xff\xff\xffT")
        with path.open("rb") as stream, pytest.raises(ValueError, match="4294967295"):
            read_frame(stream)
