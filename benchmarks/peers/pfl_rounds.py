"""Rounds of pfl-research, in an environment of its own: prints the seconds of each as JSON."""

import json
import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from work import BATCH, RATE, USERS, drawn, network, normalised


class Module(torch.nn.Module):
    """The network with the two functions that pfl asks for."""

    def __init__(self):
        """Draw the weights."""
        super().__init__()
        self.layers = network()

    def loss(self, images, labels, eval=False):
        """Return the cross entropy of a batch."""
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def metrics(self, images, labels, eval=False):
        """Return nothing."""
        return {}


class Stopwatch(TrainingProcessCallback):
    """Notes when each round ends."""

    def __init__(self):
        """Begin."""
        self.ends = [time.perf_counter()]

    def on_train_begin(self, *, model):
        """Begin with the first round."""
        self.ends = [time.perf_counter()]
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Note a round's end."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(rounds):
    """Train."""
    torch.set_num_threads(1)
    np.random.seed(1)
    pixels, labels = drawn()
    images = normalised(pixels)
    users = FederatedDataset(
        lambda user: PyTorchTensorDataset((images[user], labels[user]), user_id=str(user)),
        get_user_sampler("minimize_reuse", list(range(USERS))),
    )
    module, watch = Module(), Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=USERS,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=users, val_data=None),
        model=PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=RATE, local_max_grad_norm=None
        ),
        callbacks=[watch],
    )
    print(json.dumps(np.diff(watch.ends).tolist()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
