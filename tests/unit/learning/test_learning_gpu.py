"""A GPU learns what the CPU learns, up to its rounding; nothing to see where there is none."""

from contextlib import contextmanager

import learning_party
import numpy as np
import pytest
import torch
from learning_party import ANCHOR, CONSISTENT, SERVED, Party, given, images_of, method_of, watch_steps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def use_the_gpu(monkeypatch):
    for build in ("build_silo_learner", "build_server_learner"):
        plain = getattr(learning_party, build)
        monkeypatch.setattr(learning_party, build, lambda *, p=plain, **options: p(**{**options, "device": "cuda"}))


@contextmanager
def no_waiting():
    """Have torch refuse whatever waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("method", [ANCHOR[0], method_of("SemiFL", pseudoLabels={"threshold": "0"})])
def test_a_gpu_learns_what_the_cpu_learns(tmp_path, monkeypatch, method):
    on_cpu = Party(method, images_of(26, labelled=False), tmp_path / "cpu")
    on_cpu.train()
    use_the_gpu(monkeypatch)
    on_gpu = Party(method, images_of(26, labelled=False), tmp_path / "gpu", initial=on_cpu.model)
    announcement = on_gpu.train()
    for name, array in on_cpu.arrays().items():
        assert np.allclose(on_gpu.arrays()[name], array, atol=0.05), name
    assert np.isfinite(announcement.metrics["loss"])
    assert on_gpu.digest() == announcement.update.digest, "the same bytes on the same GPU"
    trained, metrics = on_gpu.server.train(on_gpu.model, 1)
    assert np.isfinite(list(metrics.values())).all()
    assert on_gpu.server.evaluate(trained, 1).metrics["accuracy"] >= 0


@pytest.mark.parametrize(
    ("method", "labels"),
    [(ANCHOR[0], "None"), (SERVED[0], "None"), (CONSISTENT[0], "None"), (method_of("SemiAnAgg"), "Partial"), (method_of("FedCLR"), "Partial")],
    ids=lambda parameter: getattr(parameter, "name", parameter),
)  # fmt: skip
def test_no_step_waits_for_the_gpu(tmp_path, monkeypatch, method, labels):
    use_the_gpu(monkeypatch)
    party = Party(method, given(labels), tmp_path, labels)
    expected = party.digest()  # what is made once, such as convolutions' plans, may wait
    watch_steps(monkeypatch, no_waiting)
    assert party.digest() == expected
    momentum = party.learner._networks.momentum
    assert momentum and all(buffer.is_cuda for buffer in momentum.values())
