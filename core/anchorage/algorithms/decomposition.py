"""FedMatch's weights in two parts, ``theta = sigma + psi``, of which one step trains one (methods reference, 6.6)."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled
from anchorage.learning.network import Network

NAME = "psi"
"""Begins the names of the second part's tensors."""

_SMALLEST_PROBABILITY = 1e-7  # as Keras clamps


class Psi(nn.Module):
    """FedMatch's unsupervised part: one more tensor for every parameter of a network (methods reference, 6.6), first a fifth of it.

    Parameters
    ----------
    network : Module
        Whose parameters, by their names, get a second part.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        for name, parameter in network.named_parameters():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(0.2 * parameter.detach()))

    def restart(self, network: nn.Module) -> None:
        """Take a fifth of the network's present parameters."""
        with torch.no_grad():
            parts = self.by_name()
            for name, parameter in network.named_parameters():
                if name in parts:
                    parts[name].copy_(0.2 * parameter)

    def by_name(self) -> dict[str, nn.Parameter]:
        """Return the parts by the names of the network's parameters."""
        return {name.replace("/", "."): parameter for name, parameter in self.named_parameters()}


def psi_of(network: Network) -> Psi | None:
    """Return the second part of a network's parameters; None where it has one part."""
    psi = network.find_head(NAME)
    return psi if isinstance(psi, Psi) else None


class Parts:
    """A network whose parameters are sums of its own (sigma) and of those in its `Psi`.

    Parameters
    ----------
    network : Network
        With a second part.
    """

    def __init__(self, network: Network) -> None:
        psi = psi_of(network)
        assert psi is not None, "the method splits no weights"
        self.network = network
        self.psi: Mapping[str, nn.Parameter] = psi.by_name()
        self.sigma = {name: p for name, p in network.named_parameters() if name in self.psi}

    def train_sigma(self, images: Tensor) -> Tensor:
        """Return logits [n, C] whose gradient reaches sigma alone."""
        return self._logits({name: s + self.psi[name].detach() for name, s in self.sigma.items()}, images)

    def train_psi(self, images: Tensor) -> Tensor:
        """Return logits [n, C] whose gradient reaches psi alone."""
        return self._logits({name: s.detach() + self.psi[name] for name, s in self.sigma.items()}, images)

    def with_psi(self, psi: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``sigma + psi`` with another psi, detached from both."""
        return {name: s.detach() + psi[name] for name, s in self.sigma.items()}

    @torch.no_grad()
    def probabilities(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Return class probabilities [n, C] with given weights, in eval mode."""
        training = self.network.training
        self.network.eval()
        try:
            return self._logits(weights, images).softmax(1)
        finally:
            self.network.train(training)

    def _logits(self, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.network, dict(weights), (images,))
        return logits


def penalty(sigma: Mapping[str, Tensor], psi: Mapping[str, Tensor], closeness: float, sparsity: float) -> Tensor:
    """Return ``closeness |sigma - psi|^2 + sparsity |psi|_1`` over all weights; its gradient reaches psi alone (KAT-K1)."""
    apart = torch.stack([(sigma[name].detach() - p).square().sum() for name, p in psi.items()]).sum()
    size = torch.stack([p.abs().sum() for p in psi.values()]).sum()
    return closeness * apart + sparsity * size


def sigma_losses(network: Network, data: Labelled, batching: Batching, draws: Draws, weight: float) -> Iterator[Tensor]:
    """Yield `weight` times the cross entropy of plain images, whose gradient reaches sigma alone: the server's part of FedMatch."""
    parts = Parts(network)
    for positions in batching.positions(len(data.indices), draws.numpy("batches")):
        indices, labels = data.batch(positions)
        logits = parts.train_sigma(data.views.plain(indices))
        yield weight * nn.functional.cross_entropy(logits, labels)


def fold(network: Network) -> None:
    """Make a network with two parts an ordinary one of the same outputs: ``sigma + psi`` and 0. Others are left alone."""
    if psi_of(network) is not None:
        parts = Parts(network)
        with torch.no_grad():
            for name, sigma in parts.sigma.items():
                sigma.add_(parts.psi[name])
                parts.psi[name].zero_()


@torch.no_grad()
def sparsify(
    part: Mapping[str, nn.Parameter], received: Mapping[str, Tensor], smallest_change: float, smallest: float = 0.0
) -> None:
    """Drop what of a part is hardly there, then put back what hardly changed since it was received."""
    for name, p in part.items():
        p.masked_fill_(p.abs() <= smallest, 0.0)
        p.copy_(torch.where((p - received[name]).abs() <= smallest_change, received[name], p))


def vote(model_probabilities: Tensor, helpers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the class that most models choose, int64 [n], and the votes [n, C]; a tie goes to the own model's class, else to the lowest (KAT-K1).

    Parameters
    ----------
    model_probabilities : Tensor, shape [n, C]
        Probabilities of the model in training.
    helpers : sequence of Tensor, shape [n, C]
        Probabilities of the helpers.
    """
    classes = torch.arange(model_probabilities.shape[1], device=model_probabilities.device)
    choices = [(p.argmax(1)[:, None] == classes).long() for p in (model_probabilities, *helpers)]
    votes = torch.stack(choices).sum(0)
    return (2 * votes + choices[0]).argmax(1), votes


def agreement(model_probabilities: Tensor, helpers: Sequence[Tensor]) -> Tensor:
    """Return the mean over helpers and images of ``KL(helper || own)`` in nats, 0 without helpers (KAT-K1).

    Parameters
    ----------
    model_probabilities : Tensor, shape [n, C]
        Probabilities of the model in training; the gradient goes there.
    helpers : sequence of Tensor, shape [n, C]
        Probabilities of the helpers.
    """
    if not helpers:
        return model_probabilities.new_zeros(())
    log_own = model_probabilities.clamp(min=_SMALLEST_PROBABILITY).log()
    each = [(p * (p.clamp(min=_SMALLEST_PROBABILITY).log() - log_own)).sum(1).mean() for p in helpers]
    return torch.stack(each).mean()
