"""The final and the best model as files: the network alone, whatever travels with it."""

import json
from contextlib import closing

import numpy as np

from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store import DiskStore, Identity
from anchorage.methods import PRESETS
from anchorage.methods.results import write_results
from anchorage.pieces.task.classification import Classification
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors

LAYOUT = Layout.of([("w", "F32", (3,)), ("control.w", "F32", (3,))])


def test_control_variates_stay_in_the_checkpoint(tmp_path):
    spec = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b", "c")), image_size=8)
    method = PRESETS["SCAFFOLD"].slots
    json_layout = LAYOUT.to_json()
    run = RunDescription(
        federation="f",
        seed=1,
        model=spec,
        method=method,
        down=json_layout,
        up=json_layout,
        rounds=1,
        mode="Synchronous",
    )
    arrays = {"w": np.ones(3, np.float32), "control.w": np.full(3, 2, np.float32)}
    made = ModelBytes.from_arrays(LAYOUT, arrays)
    tested = {"final": {"loss": 0.2, "accuracy": 0.75}, "best": {"accuracy": 0.875}}
    with closing(DiskStore(tmp_path, Identity({}, (LAYOUT,)))) as store:
        store.commit(RoundRecord(0, made.digest, 1.0, {"accuracy": 0.5}, test=tested), made, {})
        final, best = write_results(tmp_path / "model", run, store)
        assert store.latest().model.digest == made.digest
    assert final.digest == best.digest == made.of_network().digest != made.digest
    layout, metadata = read_description(tmp_path / "model" / "final.safetensors")
    assert list(layout.by_name) == ["w"] and metadata["digest"] == final.digest
    assert read_safetensors(tmp_path / "model" / "final.safetensors").model.digest == final.digest
    written = json.loads((tmp_path / "model" / "model.json").read_text())
    assert written["final"]["digest"] == final.digest
    assert {name: written[name]["test"] for name in tested} == tested
    assert [(metric.name, metric.value) for metric in final.metrics] == [("accuracy", "0.75"), ("loss", "0.2")]
    assert [metric.value for metric in best.metrics] == ["0.875"]
