"""What a training does not do again for every silo, round and step: memory of the optimiser, waiting for the device."""

import traceback
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_party import (
    ADAPTIVE,
    ANCHOR,
    CONSISTENT,
    MATCHED,
    SERVED,
    Party,
    given,
    images_of,
    method_of,
    network_of,
    watch_steps,
)
from torch.utils._python_dispatch import TorchDispatchMode

import anchorage
from anchorage.learning import stepping
from anchorage.learning.local_training import Batching
from anchorage.learning.stepping import take_steps
from anchorage.pieces.optimiser.sgd import Sgd

READ = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}
INDEX = {"aten::index", "aten::index_put", "aten::index_put_"}
PRODUCT = str(Path(anchorage.__file__).parent)
DRAWN = f"{PRODUCT}/learning/data/"
"""Views are drawn on the CPU, and what is read there are draws."""
METHODS = [
    *((method_of(name), labels) for name, labels in [
        ("FedProx", "All"), ("MOON", "All"), ("SCAFFOLD", "All"), ("FedAvgSemi", "Partial"), ("SemiAnAgg", "None"),
        ("SSILCDM", "None"), ("RSCFed", "Partial"), ("FedCon", "None"), ("FedRoD", "All"), ("FedCLR", "Partial"), ("Orchestra", "None"),
    ]),
    *((method, "None") for method in (ANCHOR[0], SERVED[0], CONSISTENT[0], CONSISTENT[2], ADAPTIVE[0])),
    MATCHED[0],
]  # fmt: skip


class Reads(TorchDispatchMode):
    """Counts what would have a host wait for the GPU that calculates: values read, and results whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        masks = name in INDEX and any(i is not None and i.dtype == torch.bool for i in args[1])
        if masks or name in READ:
            source = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PRODUCT)][-1]
            self.counts[f"{source.filename}:{source.lineno} {name}"] += DRAWN not in source.filename
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("method", "labels"), METHODS, ids=lambda value: getattr(value, "name", value))
def test_no_step_waits_for_the_device(tmp_path, monkeypatch, method, labels):
    reads = Reads()
    watch_steps(monkeypatch, lambda: reads)
    party = Party(method, given(labels), tmp_path, labels)
    assert party.train().update is not None
    allowed = {"helpers.py": 1}  # FedMatch's batch is of the images that are confident, so its size has to be known
    counts = {place: count for place, count in reads.counts.items() if count}
    assert all(count <= allowed.get(place.split(":")[0].split("/")[-1], 0) for place, count in counts.items()), counts


def test_an_optimiser_s_memory_is_reset_in_place():
    network, buffers = network_of("FedAvg"), {}
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    rules = Sgd(learning_rate="0.1", momentum="0.9", weight_decay="0.01")

    def trained(sgd: torch.optim.SGD) -> Sequence[torch.Tensor]:
        network.load_state_dict(start)
        images = torch.linspace(-1, 1, 4 * 64).view(4, 1, 8, 8)
        take_steps(network, sgd, (network(images).square().mean() for _ in range(3)))
        return [parameter.detach().clone() for parameter in network.parameters()]

    expected = trained(rules.build(network))
    for turn in range(2):
        sgd = rules.build(network, buffers=buffers)
        memory = [state["momentum_buffer"] for state in sgd.state.values()]
        assert all(buffer is stored for buffer, stored in zip(memory, buffers.values(), strict=True)), turn
        assert not any(buffer.any() or buffer.requires_grad for buffer in memory), turn
        assert all(map(torch.equal, trained(sgd), expected)), turn
        assert all(buffer.any() for buffer in memory if buffer.ndim > 1), "the steps went into this memory"


def test_silos_that_share_a_network_share_the_optimiser_s_memory(tmp_path):
    party = Party(method_of("FedAvg"), given("All"), tmp_path, "All")
    first = party.digest()
    momentum = dict(party.learner._networks.momentum)
    assert len(momentum) == len(list(party.learner._network.parameters()))
    assert party.digest() == first, "the same round again"
    assert all(party.learner._networks.momentum[parameter] is buffer for parameter, buffer in momentum.items())


def stepped(monkeypatch: pytest.MonkeyPatch, *, expected: int, steps: int = 10) -> tuple[int, stepping.Trial]:
    """Take steps in a trial by a clock that goes on by a second at each look; it may take two seconds."""
    monkeypatch.setattr(stepping, "clock", count(0.0, 1.0).__next__)
    network = network_of("FedAvg")
    images = torch.linspace(-1, 1, 4 * 64).view(4, 1, 8, 8)
    sgd = Sgd(learning_rate="0.1").build(network)
    with stepping.trial(2.0) as trial:
        _, done = take_steps(network, sgd, (network(images).square().mean() for _ in range(steps)), expected=expected)
    return done, trial


def test_a_trial_cuts_a_training_and_says_how_long_the_rest_would_take(monkeypatch):
    done, trial = stepped(monkeypatch, expected=10)
    assert (done, trial.missing) == (3, 7.0)


def test_a_trial_does_not_cut_a_training_of_unknown_length(monkeypatch):
    done, trial = stepped(monkeypatch, expected=0)
    assert (done, trial.missing) == (10, 0.0)


def test_steps_in_place_of_passes_cut_the_last_pass_short() -> None:
    short = Batching(epochs=5, size=4, smallest=1, exactly=8)
    batches = list(short.positions(10, np.random.default_rng(1)))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2, 4, 4] and short.steps(10) == 8
    for first in (0, 3):
        assert sorted(np.concatenate(batches[first : first + 3])) == list(range(10)), "every image once a pass"
    assert [len(batch) for batch in Batching(5, 4, 1, 2).positions(10, np.random.default_rng(1))] == [4, 4]
    assert short.steps(0) == Batching(5, 4, 2, 8).steps(1) == 0, "no batch, no step"
    assert not list(Batching(5, 4, 2, 8).positions(1, np.random.default_rng(1)))


@pytest.mark.parametrize("count", [9, 30])
def test_silos_of_any_size_take_as_many_steps(tmp_path: Path, count: int) -> None:
    party = Party(
        method_of("FedAvg", local={"epochs": 7, "batchSize": 8, "steps": 3}), images_of(count), tmp_path, "All"
    )
    party.train()
    assert party.steps == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("labels", ["All", "Partial", "None"])
@pytest.mark.parametrize("steps", [3, 9])
def test_silos_learn_pseudo_labels_in_as_many_steps(tmp_path: Path, labels: str, steps: int) -> None:
    """Of steps beyond a pass over the unlabelled images, those of the pass that was begun last are told as accepted."""
    taught = {"pseudoLabels": {"uda": {"threshold": "0"}}}
    method = method_of("FedAvgUDA", local={"epochs": 7, "batchSize": 8, "steps": steps}, **taught)
    images = given(labels)
    party = Party(method, images, tmp_path, labels)
    announcement = party.train()
    assert party.steps == [(step, steps) for step in range(1, steps + 1)]
    unlabelled = len(images.labels) if labels == "None" else int((images.labels < 0).sum())
    in_pass = -(-unlabelled // 8)
    last = steps - (steps - 1) // in_pass * in_pass if in_pass else 0
    assert announcement.samples["selected"] == min(8 * last, unlabelled)
