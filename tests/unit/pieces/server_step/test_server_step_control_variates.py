"""SCAFFOLD against the known answers O1 and O2: a silo's part and the server's together, on scalars."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from anchorage.pieces.server_step.control_variates import COUNTED, ControlVariates, CountedUpdates, SiloVariates
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

pytestmark = pytest.mark.known_answers
STATE = {"control/x": np.array([0.5]), COUNTED: np.array([0])}
LAYOUT = Layout.of([("x", "F64", (1,)), ("control.x", "F64", (1,))])


class Scalar(nn.Module):
    """The model is one number."""

    def __init__(self, x):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(x))


def model(x, c=(0.0,)):
    return ModelBytes.from_arrays(LAYOUT, {"x": np.asarray(x, np.float64), "control.x": np.asarray(c, np.float64)})


def variates(network, received, state, auxiliary):
    """Make a silo's part of a round from the fields of the round that it reads."""
    return SiloVariates(SimpleNamespace(network=network, received=received, kept=state, auxiliary_data=auxiliary))


class Federation:
    """Clients with the losses ``a/2 (x - b)^2`` and plain SGD."""

    def __init__(self, case, step):
        self.case, self.model, self.step = case, model([case["x0"]]), step
        self.silo_states, self.memory = [{} for _ in case["a"]], CountedUpdates()

    def train(self, client):
        a, b, rate = self.case["a"][client], self.case["b"][client], self.case["eta"]
        arrays = self.model.arrays()
        network = Scalar(arrays["x"])
        controls = variates(network, arrays, self.silo_states[client], self.memory.auxiliary_data(str(client)))
        sgd = torch.optim.SGD(network.parameters(), lr=rate)
        with controls.stepping():
            for _ in range(self.case["local_steps"]):
                sgd.zero_grad()
                (a / 2 * (network.x - b) ** 2).sum().backward()
                sgd.step()
        controls.trained(self.case["local_steps"] * rate)
        self.silo_states[client] = controls.kept()
        return {"x": network.x.detach().numpy(), **controls.beside()}

    def round(self, number, clients, late=()):
        for client in late:
            self.train(client)
        updates = [self.train(client) for client in clients]
        announcement = Announcement("task", {}, {}, {}, self.model.manifest)
        self.memory.conclude({str(client): announcement for client in clients})
        mean = {name: np.mean([update[name] for update in updates], 0) for name in updates[0]}
        share = len(clients) / len(self.silo_states)
        self.model = self.step.apply(self.model, ModelBytes.from_arrays(LAYOUT, mean), number, share)
        arrays = self.model.arrays()
        return {
            "y": [update["x"].item() for update in updates],
            "c_i": [silo_state["control/x"].item() for silo_state in self.silo_states if silo_state],
            "x": arrays["x"].item(),
            "c": arrays["control.x"].item(),
        }


def scaffold(rate="1"):
    step = ControlVariates(learning_rate=rate).step()
    assert step.state() == {}
    return step


def test_o1_two_clients(known):
    case = known.inputs("O1_scaffold")
    clients, rate = range(len(case["a"])), known.decimal(case["eta_g"])
    federation = Federation(case, scaffold(rate))
    rounds = [federation.round(number, clients) for number in range(1, case["rounds"] + 1)]

    plain, x = [], case["x0"]
    for _ in range(case["rounds"]):
        fedavg = Federation({**case, "x0": x}, scaffold())
        x = np.mean([fedavg.train(client)["x"] for client in clients])
        plain.append(x)
    for number in range(case["rounds"] + 1, 1000):
        federation.round(number, clients)
    known.check(
        "O1_scaffold",
        {
            "rounds": rounds,
            known.key("O1_scaffold", "fedavg_after_.*_rounds"): plain[-1],
            "optimum": federation.model.arrays()["x"].item(),
        },
    )


def test_o2_partial_participation(known):
    case = known.inputs("O2_scaffold_partial")
    after = Federation(case, scaffold()).round(1, case["participants"])
    known.check("O2_scaffold_partial", {"c_after": after["c"]})


def test_an_update_that_did_not_count_has_not_happened():
    """Else c and the mean of the silos' own variates part for ever, and the rounds end elsewhere."""
    case = {"a": [1.0, 3.0], "b": [0.0, 4.0], "x0": 10.0, "eta": 0.1, "local_steps": 2}
    federation, undisturbed = Federation(case, scaffold()), Federation(case, scaffold())
    federation.round(1, [0, 1])
    federation.round(2, [0], late=[1])
    federation.round(3, [0], late=[1])
    undisturbed.round(1, [0, 1])
    undisturbed.round(2, [0])
    undisturbed.round(3, [0])
    assert federation.round(4, [0, 1]) == undisturbed.round(4, [0, 1])
    restored = CountedUpdates()
    restored.restore(federation.memory.state())
    assert [restored.auxiliary_data(client)[COUNTED].tolist() for client in "012"] == [[4], [2], [0]]


def test_with_momentum_the_variate_is_no_mean_of_gradients():
    """Why the checks refuse momentum (methods reference, section 12, number 14); the correction still comes before it."""
    network = Scalar(np.array([10.0]))
    controls = variates(network, {"control.x": np.array([2.0])}, STATE, {COUNTED: np.array([1])})
    sgd = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    with controls.stepping():
        (network.x**2 / 2).sum().backward()
        assert network.x.grad.item() == 11.5
        sgd.step()
        sgd.zero_grad()
        (network.x**2 / 2).sum().backward()
        gradients = 10.0, network.x.grad.item() - 1.5
        sgd.step()
    network.x.grad = None
    (network.x**2 / 2).sum().backward()
    assert network.x.grad.item() == network.x.item(), "the correction ends with the round"
    controls.trained(0.2)
    assert controls.kept()["control/x"].item() != pytest.approx(sum(gradients) / 2)
