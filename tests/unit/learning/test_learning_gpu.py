"""A GPU learns what the CPU learns, up to its rounding; nothing to see where there is none."""

import learning_party
import numpy as np
import pytest
import torch
from learning_party import ANCHOR, Party, images_of, method_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("method", [ANCHOR[0], method_of("SemiFL", pseudoLabels={"threshold": "0"})])
def test_a_gpu_learns_what_the_cpu_learns(tmp_path, monkeypatch, method):
    on_cpu = Party(method, images_of(26, labelled=False), tmp_path / "cpu")
    on_cpu.train()
    for build in ("build_silo_learner", "build_server_learner"):
        plain = getattr(learning_party, build)
        monkeypatch.setattr(learning_party, build, lambda *, p=plain, **given: p(**{**given, "device": "cuda"}))
    on_gpu = Party(method, images_of(26, labelled=False), tmp_path / "gpu", initial=on_cpu.model)
    announcement = on_gpu.train()
    for name, array in on_cpu.arrays().items():
        assert np.allclose(on_gpu.arrays()[name], array, atol=0.05), name
    assert np.isfinite(announcement.metrics["loss"])
    assert on_gpu.digest() == announcement.update.digest, "the same bytes on the same GPU"
    trained, metrics = on_gpu.server.train(on_gpu.model, 1)
    assert np.isfinite(list(metrics.values())).all()
    assert on_gpu.server.evaluate(trained, 1).metrics["accuracy"] >= 0
