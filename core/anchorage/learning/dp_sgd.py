"""DP-SGD: noise in every step hides each single image (Abadi et al. 2016, Deep Learning with Differential Privacy, algorithm 1)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import NOT_ACCOUNTED
from anchorage.learning.batch_norm import counts_statistics
from anchorage.learning.local_training import Loss
from anchorage.learning.network import Network
from anchorage.learning.poisson import PoissonBatches
from anchorage.learning.silo_round import SiloRound, Work

GRADIENT_BYTES = 256 << 20
"""Memory for gradients of single images."""


@dataclass(frozen=True, slots=True)
class DpSgd:
    """Steps on Poisson samples of the images, with clipped gradients and noise from the operating system's entropy.

    Images are seen as they are, and the network is in eval mode: random numbers of augmentation or dropout would be those of another image where
    one image more is in the sample.
    """

    clip_norm: float
    """Maximum Euclidean norm of one image's gradient over all trained parameters."""
    noise_multiplier: float
    """Standard deviation of the noise, divided by `clip_norm`."""

    def take_steps(
        self, silo_round: SiloRound, work: Work, optimiser: torch.optim.Optimizer, progress: Callable[[int, int], int]
    ) -> tuple[float, int]:
        """Train a silo's round; return 0 in place of a loss, which is not private, and the number of steps.

        Raises
        ------
        AnchorageError
            NOT_ACCOUNTED: a step would depend on an image by more than its own gradient.
        """
        network, views = silo_round.network, silo_round.images.views
        if obstacle := _obstacle(silo_round, work):
            raise AnchorageError(NOT_ACCOUNTED, f"{obstacle} (privacyBudget.dpSgd)")
        data, labelled_loss = silo_round.labelled()
        loss = labelled_loss.loss  # a transformed function cannot look at its values
        local = silo_round.local(labelled=True)
        count = len(data.indices)
        batches = PoissonBatches.of(count, local.batch_size, local.epochs, local.steps)
        trained = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
        secret = np.random.default_rng()
        network.eval()
        for done, positions in enumerate(batches.draw(count, secret), start=1):
            indices, labels = data.batch(positions)
            sums = clipped_sums(network, trained, views.plain, indices, labels, loss, self.clip_norm)
            for name, parameter in trained.items():
                noise = secret.normal(0.0, self.noise_multiplier * self.clip_norm, tuple(parameter.shape))
                noised = sums[name] + torch.from_numpy(np.asarray(noise)).to(parameter.device)
                parameter.grad = torch.empty_like(parameter).copy_(noised / (batches.rate * count))
            optimiser.step()
            progress(done, batches.steps)
        optimiser.zero_grad(set_to_none=True)
        return 0.0, batches.steps


def clipped_sums(
    network: Network,
    trained: dict[str, torch.nn.Parameter],
    view: Callable[[Tensor], Tensor],
    indices: Tensor,
    labels: Tensor,
    loss: Loss,
    clip_norm: float,
) -> dict[str, Tensor]:
    """Return the sum over images of their gradients, each scaled down to `clip_norm`; one that is not finite counts as 0.

    Parameters
    ----------
    network : Network
        The network, in eval mode.
    trained : dict of str to Parameter
        Parameters whose gradients are taken, together as one vector.
    view : callable
        Returns images, float32 [b, channels, H, W], by their indices.
    indices, labels : Tensor of int64, shape [n]
        Images and their classes; there may be none.
    loss : callable
        Mean loss of logits [n, C] and labels [n].
    clip_norm : float
        Maximum norm.

    Returns
    -------
    dict of str to Tensor
        Of the parameters' shapes, float64.
    """

    def of_one(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return loss(functional_call(network, values, (image[None],)), label[None])

    values = {name: parameter.detach() for name, parameter in trained.items()}
    sums = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in values.items()}
    together = max(1, GRADIENT_BYTES // sum(value.nbytes for value in values.values()))
    for some, classes in zip(torch.split(indices, together), torch.split(labels, together), strict=True):
        if not len(some):
            continue
        gradients = vmap(grad(of_one), in_dims=(None, 0, 0), randomness="error")(values, view(some), classes)
        norms = sum(each.double().flatten(1).square().sum(1) for each in gradients.values()).sqrt()
        scales = torch.where(norms.isfinite(), (clip_norm / norms.clamp(min=1e-12)).clamp(max=1.0), 0.0)
        for name, each in gradients.items():
            finite_gradients = torch.where(norms.isfinite().view(-1, *[1] * (each.ndim - 1)), each, 0.0).double()
            sums[name] += torch.einsum("n,n...->...", scales, finite_gradients)
    return sums


def _obstacle(silo_round: SiloRound, work: Work) -> str:
    """Return why steps would depend on an image by more than its gradient; empty where they do not."""
    method, images = silo_round.method, silo_round.images
    if counts_statistics(silo_round.network):
        return (
            f"{silo_round.run.model.network} counts statistics of batches in its batch normalisation; set "
            "batchNorm: {groupNorm: {}}, or frozen: {} with pretrained weights"
        )
    if silo_round.parts or not work.per_image:
        return f"the loss of {method.resolved.name} is no mean of one loss per labelled image; take FedAvg with localLoss: {{taskLoss: {{}}}}"
    if len(images.labelled) != len(images.labels) or method.local.accumulation > 1:
        return "needed are labels of all images (labels: All), no images kept from training, and accumulation: 1"
    return ""
