"""How a run's models and updates travel, as a silo reads it from the run's description."""

from functools import lru_cache

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import MALFORMED_MESSAGE
from anchorage.api.piece import expect
from anchorage.api.run import RunDescription
from anchorage.engine.hooks import EncodingHooks
from anchorage.transport.messages import Task
from anchorage.transport.tensors.chunks import ChunkSink
from anchorage.transport.tensors.encoded import Encoding, encoding_of
from anchorage.transport.tensors.encoded_model import model_encoding


@lru_cache(maxsize=8)
def _run_of(description: str) -> RunDescription:
    """Read a description, which the server may have changed since it was read first."""
    try:
        return RunDescription.model_validate_json(description)
    except ValidationError as error:
        raise AnchorageError(MALFORMED_MESSAGE, "the run's description of this session cannot be read") from error


def update_encoding(description: str, round_number: int) -> Encoding | None:
    """Return how updates of a round travel, of a run's description (JSON); None: as they are.

    Raises
    ------
    AnchorageError
        MALFORMED_MESSAGE: the description cannot be read.
    """
    run = _run_of(description).stage(round_number)
    coding = expect(run.method.encoding, EncodingHooks).coding()
    return encoding_of(coding, run.down, run.up) if coding else None


def decoding_sink(description: str, task: Task, model: ChunkSink) -> ChunkSink:
    """Return where a task's model arrives as it travels, of a run's description (JSON).

    Raises
    ------
    AnchorageError
        MALFORMED_MESSAGE: the description cannot be read, the run has no encoding of models, or the task's model is none of the run's.
    """
    run = _run_of(description).stage(task.round)
    encoding = model_encoding(run.model_encoding, run.down) if run.model_encoding else None
    if encoding is None or not encoding.fits(task.model):
        detail = f"{task.id}: a model that travels encoded, and the run's description has none of its kind"
        raise AnchorageError(MALFORMED_MESSAGE, detail)
    return encoding.sink(model)
