"""Rounds of Flower's simulation engine (Ray), in an environment of its own: prints the seconds of each as JSON."""

import json
import sys
import time
from itertools import pairwise

import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from work import BATCH, IMAGES, RATE, USERS, drawn, network, normalised

ENDS = []


class Client(NumPyClient):
    """One user."""

    def __init__(self, images, labels):
        """Keep the user's images."""
        self.images, self.labels = images, labels

    def fit(self, parameters, config):
        """Train for one epoch."""
        torch.set_num_threads(1)
        model = network()
        model.load_state_dict(dict(zip(model.state_dict(), map(torch.from_numpy, parameters), strict=True)))
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        for rows in torch.randperm(IMAGES).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(self.images[rows]), self.labels[rows]).backward()
            optimiser.step()
        return [value.numpy() for value in model.state_dict().values()], IMAGES, {}


class Watched(FedAvg):
    """Notes when each round ends."""

    def configure_fit(self, server_round, parameters, client_manager):
        """Begin with the first round."""
        ENDS.extend([time.perf_counter()] * (not ENDS))
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round, results, failures):
        """Note a round's end."""
        if failures:
            raise SystemExit(f"{len(failures)} clients failed: {failures[0]}")
        aggregated = super().aggregate_fit(server_round, results, failures)
        ENDS.append(time.perf_counter())
        return aggregated


def client(context):
    """Return the client of a user."""
    user = int(context.node_config["partition-id"])
    pixels, labels = drawn()
    return Client(normalised(pixels[user]), labels[user]).to_client()


def main(rounds):
    """Train."""
    first = ndarrays_to_parameters([value.numpy() for value in network().state_dict().values()])
    strategy = Watched(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=USERS,
        min_available_clients=USERS,
        initial_parameters=first,
    )
    server = ServerApp(
        server_fn=lambda _: ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))
    )
    options = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, ClientApp(client_fn=client), num_supernodes=USERS, backend_config=options)
    print(json.dumps([after - before for before, after in pairwise(ENDS)]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
