"""The linear probe: how much a frozen encoder's features say about the classes (methods reference, 6.13)."""

import torch
from torch import Tensor, nn

from anchorage.learning.draws import Draws
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.optimisers import PlainSgd
from anchorage.learning.views import epoch_batches

EPOCHS, DROPS, BATCH = 100, (60, 80), 256
_RATE, _MOMENTUM = 0.1, 0.9


def linear_probe(features: Tensor, labels: Tensor, task: TaskHooks, draws: Draws) -> nn.Linear:
    """Train a linear classifier on features that do not change: SGD with momentum, the step a tenth from epochs 60 and 80 on.

    Parameters
    ----------
    features : Tensor of float, shape [n, d]
        Of labelled images, each by its plain view.
    labels : Tensor, shape [n, ...]
        Their labels.
    task : TaskHooks
        What is learnt of them.
    draws : Draws
        Order of the batches; the first weights are zero.
    """
    classifier = nn.Linear(features.shape[1], len(task.outputs)).to(features.device)
    with torch.no_grad():
        classifier.weight.zero_()
        classifier.bias.zero_()
    sgd = PlainSgd([{"params": classifier.parameters(), "lr": _RATE, "weight_decay": 0.0}], _MOMENTUM)
    order = draws.numpy("probe")
    for epoch in range(EPOCHS):
        sgd.param_groups[0]["lr"] = _RATE * 0.1 ** sum(epoch >= drop for drop in DROPS)
        for positions in epoch_batches(order, len(features), BATCH, 1):
            chosen = torch.from_numpy(positions).to(features.device)
            loss = task.loss(classifier(features[chosen]), labels[chosen])
            sgd.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            sgd.step()
    return classifier
