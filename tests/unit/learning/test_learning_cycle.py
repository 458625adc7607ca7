"""When an adaptive silo asks for an update (KAT-H2 to H4), and what its round then consists of."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learning_party import Party, given, method_of

from anchorage.api.method import ValidationCycle
from anchorage.learning import validation_cycle as cycle_module
from anchorage.learning.validation_cycle import FIRST_CYCLES, Cycle, extend_history, staleness_limit
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.transport.messages import Announcement


def rules(plateau: float | str = 0, tombstones: int = 4, epochs: int = 32) -> ValidationCycle:
    return ValidationCycle(plateau_percent=str(plateau), tombstones=tombstones, max_epochs=epochs)


@pytest.mark.known_answers
def test_h2_staleness_median(known, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FIRST_CYCLES == 20
    inputs = known.inputs("H2_staleness_median")
    monkeypatch.setattr(cycle_module, "FIRST_CYCLES", len(inputs["values"]))
    history: list[int] = []
    for value in inputs["values"]:
        assert staleness_limit(history) is None
        history = extend_history(history, value)
    limit = staleness_limit(history)
    triggers = [
        s
        for s in inputs["candidates_for_triggers_at"]
        if Cycle(rules(), 1.0, limit).ends(0.5, s) and not Cycle(rules(), 1.0, None).ends(0.5, s)
    ]
    known.check("H2_staleness_median", {"median": limit, "sorted": sorted(history), "triggers_at": triggers})
    assert extend_history(history, 7) == history, "the first cycles are frozen"
    assert extend_history([5], -1) == [5] and extend_history([5], None) == [5]


@pytest.mark.known_answers
def test_h3_validation_cycle(known) -> None:
    first, *losses = known.inputs("H3_validation_cycle")["validation_losses"]
    computed: dict[str, Any] = {}
    for name in known.expected("H3_validation_cycle"):
        plateau, tombstones = re.findall(r"=([\d.]+)", name)
        limits = rules(plateau, int(tombstones), epochs=len(losses) + 1)
        cycle, trace, trigger = Cycle(limits, first, None), [], None
        for loss in losses:
            row = {"vpct": cycle.change(loss), "failed": cycle.has_failed(loss)}
            ended = cycle.ends(loss, 10**9)
            trace.append({"epoch": cycle.epochs, **row, "failures": cycle.failures})
            if ended:
                trigger = cycle.epochs
                break
        computed[name] = {"trigger_epoch": trigger, "trace": trace}
    known.check("H3_validation_cycle", computed)


@pytest.mark.known_answers
def test_h4_momentum_is_that_of_equation_2(known) -> None:
    inputs = known.inputs("H4_momentum_forms")
    eta, gamma = inputs["eta"], inputs["gamma"]

    def stepped(rates: list[float]) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        idle = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(()))])
        network: Any = SimpleNamespace(classifier=idle, parameters=lambda: [weight, *idle])
        sgd = Sgd(learning_rate="1", momentum=known.decimal(gamma), weight_decay="0").build(network)
        places = []
        for grad, rate in zip(inputs["grads"], rates, strict=True):
            weight.grad = torch.tensor(grad, dtype=torch.float64)
            sgd.param_groups[0]["lr"] = rate
            sgd.step()
            places.append(weight.item())
        return places

    def by_the_box(rates: list[float]) -> list[float]:  # u = gamma u - eta g, w += u
        velocity = place = 0.0
        places = []
        for grad, rate in zip(inputs["grads"], rates, strict=True):
            velocity = gamma * velocity - rate * grad
            place += velocity
            places.append(place)
        return places

    constant, changing = [eta] * len(inputs["grads"]), inputs["changing_rates"]
    computed = {
        "eq2": stepped(constant),
        "algorithm": by_the_box(constant),
        "eq2_changing": stepped(changing),
        "algorithm_changing": by_the_box(changing),
    }
    known.check("H4_momentum_forms", computed)


@pytest.mark.parametrize(
    ("losses", "plateau", "tombstones", "longest", "epochs"),
    [
        ([2, 1, 0, 0, 0], 0, 1, 32, 4),  # after a loss of 0 every epoch is a failure
        ([2, 2], 0, 0, 32, 1),
        ([2, 1, 0.5, 0.25], 0, 0, 3, 3),
        ([2, 1], 50, 0, 32, 1),  # a fall by just the plateau is a failure
        ([1, 2, 1, 2, 1, 2], 0, 1, 32, 3),  # failures need not follow each other
    ],
)
def test_a_cycle_ends(losses: list[float], plateau: float, tombstones: int, longest: int, epochs: int) -> None:
    cycle = Cycle(rules(plateau, tombstones, longest), losses[0], None)
    assert [cycle.ends(loss, 0) for loss in losses[1 : epochs + 1]] == [False] * (epochs - 1) + [True]


def test_slow_silos_have_rules_of_their_own() -> None:
    both = ValidationCycle(slow_silos="cpu-*")
    assert both.of("gpu-1") == both
    slow = both.of("cpu-1")
    assert (slow.plateau_percent, slow.tombstones, slow.max_epochs) == ("1", 1, 32)


class Adaptive(Party):
    """A silo whose server counts steps; `committed` is what it hears in the answers to its progress."""

    committed = 0

    def auxiliary_data(self, base: int, staleness: int | None = None) -> dict[str, np.ndarray]:
        last = {} if staleness is None else {"staleness": np.array(staleness)}
        return {"committed_steps": np.array(base), **last}

    def adapt(self, round_number: int, auxiliary: dict[str, np.ndarray]) -> Announcement:
        received = self.model.buffer()
        return self.learner.train(
            self.task(round_number, auxiliary), received, self._out, lambda done, total: self.committed
        )


def adaptive(state: Path, **cycle: Any) -> Adaptive:
    method = method_of("AsyncDVWAdaptive", local={"cycle": cycle}, weighting={"validationPercent": 20})
    return Adaptive(method, given("All"), state, "All")


def test_a_round_ends_with_its_cycle_and_says_how_long_it_was(tmp_path: Path) -> None:
    party = adaptive(tmp_path, maxEpochs=3, tombstones=100)
    announced = party.adapt(1, party.auxiliary_data(0))
    per_epoch = -(-len(party.learner._images.labelled) // 8)
    assert announced.auxiliary_data["steps"] == 3 * per_epoch and announced.metrics["epochs"] == 3
    arrays = party.arrays()
    score = party.learner._score(party.learner._network, 1)
    np.testing.assert_array_equal(announced.auxiliary_data["validation"], score)
    fixed = adaptive(tmp_path / "fixed", maxEpochs=3, tombstones=100)
    fixed.adapt(1, fixed.auxiliary_data(0))
    for name, array in fixed.arrays().items():
        np.testing.assert_array_equal(array, arrays[name])


def test_validation_between_epochs_changes_nothing(tmp_path: Path) -> None:
    """Three epochs of a cycle are those of three fixed epochs, batch statistics and random draws included."""
    party = adaptive(tmp_path / "cycle", maxEpochs=3, tombstones=100)
    announced = party.adapt(1, party.auxiliary_data(0))
    fixed = Party(
        method_of("AsyncDVW", local={"epochs": 3}, weighting={"validationPercent": 20}),
        given("All"),
        tmp_path / "fixed",
        "All",
    )
    assert announced.update is not None and fixed.digest() == announced.update.digest


def test_others_that_move_on_end_a_cycle_once_twenty_were_seen(tmp_path: Path) -> None:
    party = adaptive(tmp_path, maxEpochs=4, tombstones=100)
    party.committed = 1000
    lengths = [
        party.adapt(number, party.auxiliary_data(990, 30 if number > 1 else None)).metrics["epochs"]
        for number in range(1, 23)
    ]
    # 10 committed since the download, and own steps: 10 + 3 an epoch, never above 30 in four epochs
    assert lengths == [4] * 22
    party.committed = 1100
    assert party.adapt(23, party.auxiliary_data(990, 30)).metrics["epochs"] == 1
    party.restart()
    assert party.adapt(23, party.auxiliary_data(990, 30)).metrics["epochs"] == 1, "the history survives the process"
