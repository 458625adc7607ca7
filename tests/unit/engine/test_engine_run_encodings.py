"""A description that the server changed within a session."""

import pytest
from silo_fakes import model_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.engine.buffers import ModelBuffer
from anchorage.engine.run_encodings import decoding_sink, update_encoding


@pytest.mark.parametrize("text", ["", "{", "{}", '{"federation": "\x1b[2J"}'])
def test_a_description_that_cannot_be_read_fails_the_task(text: str) -> None:
    sink = ModelBuffer(lambda nbytes: model_of(1.0).buffer())
    with pytest.raises(AnchorageError, match="^ANC-2150"):
        decoding_sink(text, train_task(model_of(1.0)), sink)
    with pytest.raises(AnchorageError, match="^ANC-2150"):
        update_encoding(text, 1)
