"""FedEMA against the known answer SS2, and what FedBYOL and FedEMA keep at a silo."""

import numpy as np
import pytest
import torch
from learning_party import Party, images_of, method_of

from anchorage.pieces.self_supervised.byol import TARGET
from anchorage.pieces.self_supervised.fed_byol import byol_distance
from anchorage.pieces.self_supervised.fed_ema import STATE_PREFIX, divergence, first_scale, mix, own_share


def layers(values, sizes):
    return list(torch.tensor(values, dtype=torch.float64).split(sizes))


@pytest.mark.known_answers
def test_a_silo_keeps_the_more_of_its_model_the_further_it_moved(known):
    name = "SS2_fedema"
    case = known.inputs(name)
    sizes, rounds = case["layer_sizes"], []
    local, scale, moved = None, 0.0, 0.0
    for round_case in case["rounds"]:
        received, share = layers(round_case["global"], sizes), own_share(scale, moved)
        start = received if local is None else [mix(a, b, share) for a, b in zip(local, received, strict=True)]
        end = [a + b for a, b in zip(start, layers(round_case["training_change"], sizes), strict=True)]
        moved = divergence(start, end)
        scale = scale or first_scale(case["tau"], moved)
        rounds.append({
            "mu": None if local is None else share,
            "start": torch.cat(start),
            "end": torch.cat(end),
            "divergence": moved,
            "lambda": scale,
        })  # fmt: skip
        local = end
    known.check(name, {"rounds": rounds})


def test_byol_is_0_where_each_view_predicts_the_other_and_8_where_it_predicts_the_opposite():
    first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert float(byol_distance(second, first, first, second)) == pytest.approx(0)
    assert float(byol_distance(-second, -first, first, second)) == pytest.approx(8)


def trained(tmp_path, name, rounds, **pieces):
    party = Party(method_of(name, **pieces), images_of(24, labelled=False), tmp_path)
    updates = [party.train(number) for number in rounds]
    return party, updates


def test_the_target_of_fedbyol_stays_at_the_silo_and_follows_slowly(tmp_path):
    party, (update,) = trained(tmp_path, "FedBYOL", [1])
    names = party.server.up.by_name.keys()
    assert {"projector.project.0.weight", "projector.predict.3.weight"} <= names
    assert not any(name.startswith(("classifier.", TARGET)) for name in names)
    state = party.learner._state.of(1)
    first, last = party.model.arrays(), party.arrays()
    kernel = next(name for name, array in last.items() if name.startswith("encoder.") and array.ndim == 4)
    follows = state[f"{TARGET}average/0.{kernel.removeprefix('encoder.')}"]
    went, total = np.abs(follows - first[kernel]).sum(), np.abs(last[kernel] - first[kernel]).sum()
    assert 0 < went < 0.05 * total
    assert 0 <= update.metrics["loss"] <= 8


def test_a_silo_of_fedema_goes_on_from_its_own_model_unless_it_sat_out_a_round(tmp_path):
    party, (first, second, fourth) = trained(tmp_path, "FedEMA", [1, 2, 4])
    state = party.learner._state.of(2)
    assert (first.metrics["own_share"], fourth.metrics["own_share"]) == (0, 0)
    assert second.metrics["own_share"] == pytest.approx(0.7)  # it moves as far again as in its first round
    assert int(state[STATE_PREFIX + "round"]) == 2 and state[STATE_PREFIX + "scale"] > 0
    assert not any("running_mean" in name for name in state if name.startswith(STATE_PREFIX))


def test_a_silo_of_one_image_keeps_nothing_and_sends_nothing(tmp_path):
    party = Party(method_of("FedEMA"), images_of(1, labelled=False), tmp_path)
    assert not party.train().trained
    assert not any(name.startswith(STATE_PREFIX) for name in party.learner._state.of(1))
