"""The learner of plain averaging, and the check that a model fits."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import MODEL_TOO_LARGE, TENSOR_FILE_UNUSABLE
from anchorage.engine.interfaces import ServerLearner
from anchorage_server import learner as server_learner
from anchorage_server.learner import FileModel


@pytest.fixture
def initial(tmp_path: Path) -> Path:
    path = tmp_path / "initial.safetensors"
    save_file({"b": np.arange(5, dtype=np.int64), "a": np.ones((2, 3), np.float32), "e": np.empty(0, np.float32)}, path)
    return path


def test_the_model_of_round_0_is_the_file(initial: Path) -> None:
    learner: ServerLearner = FileModel(initial)
    model = learner.initialise()
    assert model.layout == learner.down == learner.up
    arrays = model.arrays()
    np.testing.assert_array_equal(arrays["b"], np.arange(5))
    np.testing.assert_array_equal(arrays["a"], np.ones((2, 3)))
    assert learner.train(model, 1) == (model, {})
    assert learner.evaluate(model, 1).metrics == {}
    assert learner.auxiliary_data(model, 1) == {}


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PK\x03\x04 a pickle in a zip file")
    with pytest.raises(AnchorageError) as raised:
        FileModel(tmp_path / "x")
    assert raised.value.failure is TENSOR_FILE_UNUSABLE


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(initial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_learner, "available_bytes", lambda: 200)
    with pytest.raises(AnchorageError, match="for 4 of it") as raised:
        FileModel(initial)
    assert raised.value.failure is MODEL_TOO_LARGE
