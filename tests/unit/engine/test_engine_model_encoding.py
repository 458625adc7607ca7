"""A silo takes a rounded model where the run's description says so, and no other; who does not know the field refuses the run."""

import json
from dataclasses import replace

import numpy as np
import pytest
from silo_fakes import FakeLink, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Assigned
from anchorage.transport.tensors.encoded_model import MODEL_CODINGS, ModelEncoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.null_learner import NullLearner
from anchorage_silo.review import read_description

LAYOUT = Layout.of([("weight", "F32", (20, 70))])
EXACT = ModelBytes.of(LAYOUT, np.random.default_rng(1).standard_normal(1400, np.float32).view(np.uint8))
ROUNDED = ModelEncoding(MODEL_CODINGS["BFloat16"], LAYOUT).round_model(EXACT)
TASK = replace(train_task(ROUNDED.model), model_encoded=True)


def description(encoding: str | None) -> str:
    model = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8, channels=1)
    text, slots = LAYOUT.to_json(), PRESETS["FedAvg"].slots
    return RunDescription.model_validate(
        {
            "federation": "derm",
            "seed": 1,
            "rounds": 5,
            "mode": "Synchronous",
            "method": slots,
            "model": model,
            "down": text,
            "up": text,
            "model_encoding": encoding,
        }
    ).to_json()


class Link(FakeLink):
    """Of a run whose models travel in an encoding."""

    encoding: str | None = "BFloat16"

    def welcome(self) -> str:
        return description(self.encoding)


def handled(encoding: str | None) -> Link:
    """Have a silo do the task in a run of an encoding."""
    link = Link(ROUNDED.model)
    link.encoding, link.models = encoding, {ROUNDED.manifest.digest: ROUNDED}
    SiloWorker(link, NullLearner(LAYOUT, LAYOUT, 0.5, 7), MemoryBuffers()).handle(Assigned(TASK))
    return link


def test_a_silo_trains_from_the_rounded_model() -> None:
    update = handled("BFloat16").announcements[TASK.id].update
    near = ROUNDED.model.arrays()["weight"] + np.float32(0.5)
    assert update is not None and update.digests == ModelBytes.from_arrays(LAYOUT, {"weight": near}).manifest.digests


@pytest.mark.parametrize(("encoding", "code"), [(None, "ANC-2150"), ("Int8", "ANC-2101")])
def test_a_model_in_another_encoding_is_refused(encoding: str | None, code: str) -> None:
    ((kind, _, announcement, *_),) = handled(encoding).messages
    assert (kind, announcement) == ("fail", code)


def test_the_description_names_the_encoding_only_where_there_is_one() -> None:
    assert "modelEncoding" not in json.loads(description(None))
    description_read = json.loads(description("Int8"))
    assert (
        description_read["modelEncoding"] == "Int8"
        and read_description(json.dumps(description_read)).model_encoding == "Int8"
    )
    with pytest.raises(AnchorageError, match="ANC-2150"):
        read_description(json.dumps({**description_read, "modelEncoding": "Int2"}))
