"""Optimisers, their learning rate over the run, and steps on the mean gradient of several batches; the known answer SS4."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_party import MODEL, Party, given, images_of, method_of, network_of
from torch import Tensor, nn

from anchorage.api.fact import Fact
from anchorage.learning.learners import build_server_learner
from anchorage.learning.network import Network
from anchorage.learning.optimiser_state import put_back
from anchorage.learning.optimisers import PlainAdamW
from anchorage.learning.stepping import take_steps
from anchorage.pieces.optimiser.adamw import AdamW
from anchorage.pieces.optimiser.sgd import Sgd

ADAMW = {"optimiser": {"adamW": {"learningRate": "0.01"}}}


def rates(optimiser: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimiser.param_groups]


def test_a_first_step_of_adamw_is_that_of_its_paper() -> None:
    """Algorithm 2: moments of one gradient g are g and g² after their bias is corrected; the decay is the learning rate's share."""
    network = network_of("FedAvg")
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    loss = sum((parameter * (index + 1)).sum() for index, parameter in enumerate(network.parameters()))
    assert isinstance(loss, Tensor)
    optimiser = AdamW(learning_rate="0.1", weight_decay="0.5").build(
        network, decay_classifier=False, classifier_rate=0.2
    )
    take_steps(network, optimiser, iter([loss]))
    for index, (name, parameter) in enumerate(network.named_parameters()):
        is_head = name.startswith("classifier.")
        rate, decay, gradient = (0.2, 0.0, index + 1) if is_head else (0.1, 0.5, index + 1)
        wanted = before[name] * (1 - rate * decay) - rate * gradient / (gradient + 1e-8)
        torch.testing.assert_close(parameter.detach(), wanted)


def test_moments_that_come_back_lie_in_memory_as_their_parameters_do() -> None:
    """A fused step pairs numbers by their places in memory; filters lie there channels last, what was kept does not."""
    filters = nn.Conv2d(3, 2, 3, bias=False).to(memory_format=torch.channels_last)
    assert not filters.weight.is_contiguous()
    optimiser, moments = torch.optim.AdamW(filters.parameters()), torch.arange(54.0).reshape(2, 3, 3, 3)
    put_back(optimiser, {0: {"exp_avg": moments, "exp_avg_sq": moments, "step": torch.tensor(2.0)}})
    state = optimiser.state[filters.weight]
    assert {state[key].stride() for key in ("exp_avg", "exp_avg_sq")} == {filters.weight.stride()}
    torch.testing.assert_close(state["exp_avg"], moments, rtol=0, atol=0)
    assert state["step"] == 2


@pytest.mark.parametrize("kind", [Sgd, AdamW])
def test_one_cycle_rises_and_falls_as_pytorch_s(kind: Any) -> None:
    rounds = 1000
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=rounds + 1, cycle_momentum=False)
    network, rules = network_of("FedAvg"), kind(learning_rate="0.1", schedule="OneCycle")
    for over in range(rounds + 1):
        if over % 50 == 0:
            assert rates(rules.build(network, done=over / rounds)) == pytest.approx(
                rates(optimiser) * 2, abs=5e-4
            )  # there the rise ends one step earlier
        optimiser.step()
        if over < rounds:
            cycle.step()


@pytest.mark.parametrize("kind", [Sgd, AdamW])
def test_a_rate_that_follows_the_run_makes_its_length_matter(kind: Any) -> None:
    assert kind().facts() == frozenset() and kind(schedule="OneCycle").facts() == {Fact.LENGTH_MATTERS}


@pytest.mark.parametrize("schedule", ["Constant", "Cosine", "WarmUpCosine", "OneCycle"])
def test_the_rate_before_the_rounds_is_constant(schedule: str) -> None:
    rules = AdamW(learning_rate="0.1", schedule=schedule)
    assert rates(rules.build(network_of("FedAvg"), learning_rate=0.5)) == [0.5, 0.5]


def test_steps_on_several_batches_are_those_on_all_their_images() -> None:
    images, targets = torch.rand(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3

    def trained(sizes: list[int], accumulation: int) -> tuple[Tensor, float, int, list[int]]:
        network: Any = Network(nn.Identity(), 4, nn.Linear(4, 3))
        nn.init.constant_(network.classifier.weight, 0.1)
        nn.init.zeros_(network.classifier.bias)

        def losses() -> Iterator[Tensor]:
            for part, labels in zip(images.split(sizes), targets.split(sizes), strict=True):
                yield nn.functional.cross_entropy(network.classifier(part), labels)

        calls: list[int] = []
        sgd = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
        loss, steps = take_steps(
            network, sgd, losses(), accumulation=accumulation, clip_norm=0.1, after_step=calls.append
        )
        return network.classifier.weight.detach(), loss, steps, calls

    several, loss, steps, progress = trained([2, 2, 2, 2, 2], 2)  # the last step has one batch
    uncut, *_ = trained([4, 4, 2], 1)
    torch.testing.assert_close(several, uncut)
    assert (steps, progress) == (3, [2, 4, 5]) and loss > 0


def test_a_silo_accumulates_and_its_control_variates_count_steps(tmp_path: Path) -> None:
    """After K plain steps from x to y, SCAFFOLD's variate changes by (x - y) / (K rate) less the federation's."""
    method = method_of(
        "SCAFFOLD", local={"batchSize": 4, "accumulation": 3, "optimiser": {"sgd": {"learningRate": "0.1"}}}
    )
    party = Party(method, given("All"), tmp_path, "All")
    party.train()
    assert [done for done, _ in party.steps] == [3, 6, 7] and {total for _, total in party.steps} == {7}
    arrays, start = party.arrays(), party.model.arrays()
    moved = (start["classifier.weight"] - arrays["classifier.weight"]) / (3 * 0.1)
    np.testing.assert_allclose(arrays["control.classifier.weight"], moved, atol=1e-5)


def test_the_server_accumulates(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step = PlainAdamW.step
    monkeypatch.setattr(PlainAdamW, "step", lambda self: (steps.append(1), step(self)))
    options = {"anchors": {"batchSize": 3, "accumulation": 2, "pretrainEpochs": 1, **ADAMW}}
    method = method_of("FedAvgFixMatchAlternate", serverTraining=options)
    anchors = images_of(12, seed=9)
    learner = build_server_learner(model=MODEL, method=method, seed=1, anchors=anchors)
    learner.initialise()
    assert len(steps) == 2  # of four batches


@pytest.mark.parametrize(("preset", "labels"), [("FedAvg", "All"), ("FedAnchor", "None"), ("SemiAnAgg", "Partial")])
def test_adamw_trains_silos_and_repeats(preset: str, labels: str, tmp_path: Path) -> None:
    method = method_of(preset, local=ADAMW, **({"pseudoLabels": {"threshold": "0"}} if preset == "FedAnchor" else {}))
    digests = {Party(method, given(labels), tmp_path / str(turn), labels).digest() for turn in range(2)}
    assert len(digests) == 1


def test_adamw_learns_the_bright_corner(tmp_path: Path) -> None:
    party = Party(method_of("FedAvg", local={"epochs": 5, **ADAMW}), images_of(60), tmp_path, "All")
    assert party.train().metrics["loss"] < 0.7  # ln 3 = 1.1 at random


def test_two_rounds_of_kept_moments_step_as_one_optimiser(tmp_path: Path) -> None:
    """An optimiser that is built anew for every round goes on as PyTorch's does that lives through all of them."""
    networks = [network_of("FedAvg"), network_of("FedAvg")]
    rules = AdamW(learning_rate="0.1", weight_decay="0.5", state="Persist")
    through, parameters = rules.build(networks[0]), {}
    for factor in (1, 2, -3):
        anew = rules.build(networks[1])
        rules.remember(networks[1], anew, parameters)
        for network, optimiser in zip(networks, (through, anew), strict=True):
            loss = sum((factor * (index + 1) * p).square().sum() for index, p in enumerate(network.parameters()))
            assert isinstance(loss, Tensor)
            take_steps(network, optimiser, iter([loss]))
        parameters = dict(rules.memory(networks[1], anew))
    for one, other in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("state", ["Reset", "Persist"])
def test_a_silo_keeps_its_moments_where_it_is_told_to(tmp_path: Path, state: str) -> None:
    method = method_of("FedAvg", local={"optimiser": {"adamW": {"state": state}}})
    party = Party(method, given("All"), tmp_path / "one", "All")
    party.train(1)
    assert any(name.startswith("adamw/") for name in party.learner._state.of(1)) == (state == "Persist")
    fresh = Party(method, given("All"), tmp_path / "fresh", "All")
    assert (party.digest(2) != fresh.digest(2)) == (state == "Persist")
    party.restart()
    assert party.digest(2) == Party(method, given("All"), tmp_path / "one", "All").digest(2), "kept on disk"


@pytest.mark.known_answers
def test_the_cosine_schedule_steps_once_per_round(known: Any) -> None:
    name = "SS4_cosine_per_round"
    case = known.inputs(name)
    sgd, network = Sgd(learning_rate=known.decimal(case["lr"]), schedule="Cosine"), network_of("FedAvg")
    rates = [sgd.build(network, done=r / case["rounds"]).param_groups[0]["lr"] for r in case["at_rounds"]]
    known.check(name, {"lr": rates})
