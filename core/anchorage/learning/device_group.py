"""Processes of one silo that train one network together, each on a device of its own and on its part of every batch."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import DEVICE_UNAVAILABLE
from anchorage.learning.device import find_device
from anchorage.learning.network import Network

_PATIENCE = timedelta(days=1)
"""How long a device waits for the others; a process that ends is noticed at once, by its end."""


@dataclass(frozen=True)
class Part:
    """One device's part of a batch of `size` images."""

    size: int
    images: slice
    """Which of them."""
    share: float = 1.0
    """Images of the part over those of the mean part; 0 where another device has the same part."""

    def of(self, *arrays: Tensor) -> Sequence[Tensor]:
        """Return the part of arrays of all images, [size, …] each."""
        return [array[self.images] for array in arrays]

    def weigh(self, loss: Tensor) -> Tensor:
        """Return the part's mean loss such that its mean over the devices is the mean over all images."""
        return loss if self.share == 1 else loss * self.share


class DeviceGroup:
    """The processes of one silo; the first one leads: it alone keeps state, and its update is the silo's.

    Every process goes through the same steps: it draws the same batches and views, learns its part, and takes the mean of all gradients.

    Parameters
    ----------
    rank : int
        Which of the processes this is, from 0.
    count : int
        How many there are; above 1 torch's process group is set up (`join`).
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._divides = False
        self._statistics: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def join(cls, rank: int, count: int, rendezvous: Path, device: str) -> "DeviceGroup":
        """Wait for the other processes, which give the same file; it must not exist before the first one comes.

        Raises
        ------
        AnchorageError
            There are fewer GPUs than processes.
        """
        if count == 1:
            return cls()
        where = device_of(device, rank, count)
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "")
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if loopback:
                os.environ[variable] = loopback
        on_gpu = where.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=dist.FileStore(str(rendezvous), count),  # type: ignore[attr-defined]
            rank=rank,
            world_size=count,
            timeout=_PATIENCE,
            device_id=where if on_gpu else None,
        )
        return cls(rank, count)

    @property
    def leads(self) -> bool:
        """Whether this process keeps state and answers."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until every process is done with the training before, so that all read the state that the first one kept."""
        if self.count > 1:
            dist.barrier()

    def begin(self, network: Network, *, divides: bool, steps: int, done: int) -> None:
        """Begin a training of `steps` losses of which `done` are stepped on; without `divides` the first process trains alone, on whole batches.

        Raises
        ------
        RuntimeError
            Another process would do other steps: its images were changed in between. All end, and read them again.
        """
        self._divides = divides and self.count > 1
        if not self._divides:
            return
        own_counts = torch.tensor([steps, done], device=network.device)
        step_counts = [torch.empty_like(own_counts) for _ in range(self.count)]
        dist.all_gather(step_counts, own_counts)
        if any(not torch.equal(each, own_counts) for each in step_counts):
            raise RuntimeError(f"the silo's devices disagree on their steps: {[each.tolist() for each in step_counts]}")
        self._statistics = [(each, each.clone()) for each in network.buffers() if each.is_floating_point()]

    def part(self, size: int, smallest: int) -> Part:
        """Return this device's part of a batch, of at least `smallest` images; where they are too few for all, the last devices add nothing."""
        if not self._divides:
            return Part(size, slice(size))
        parts = max(1, min(self.count, size // smallest))
        number = self.rank if self.rank < parts else 0
        first, end = (int(bound) for bound in np.linspace(0, size, parts + 1)[number : number + 2])
        return Part(size, slice(first, end), self.count * (end - first) / size if number == self.rank else 0.0)

    def gather(self, part: Part, part_labels: Tensor) -> Tensor:
        """Return what all devices found for their part of a batch's images, of `part_labels` shape [images of the part], as shape [size]."""
        if not self._divides:
            return part_labels
        all_labels = torch.zeros(part.size, dtype=torch.int64, device=part_labels.device)
        if part.share:
            all_labels[part.images] = part_labels.to(torch.int64)
        dist.all_reduce(all_labels)
        return all_labels.to(part_labels.dtype)

    def mean(self, loss: Tensor) -> Tensor:
        """Return the mean of the devices' losses, []."""
        if not self._divides:
            return loss
        summed = loss.double()
        dist.all_reduce(summed)
        return summed / self.count

    def average(self, network: Network) -> None:
        """Put the devices' mean in place of gradients, and of the changes of running statistics since the step before."""
        if not self._divides:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        changes = [now - before for now, before in self._statistics]
        flat = torch.cat([each.reshape(-1) for each in (*gradients, *changes)])
        dist.all_reduce(flat)
        flat /= self.count
        means = iter(torch.split(flat, [each.numel() for each in (*gradients, *changes)]))
        for gradient in gradients:
            gradient.copy_(next(means).view_as(gradient))
        for (now, before), change in zip(self._statistics, means, strict=True):
            before += change.view_as(before)
            now.copy_(before)


def device_of(name: str, rank: int, count: int) -> torch.device:
    """Return the device of one of a silo's processes: a GPU each, or the CPU for all.

    Raises
    ------
    AnchorageError
        The device does not exist here, or there are fewer GPUs than processes.
    """
    device = find_device(name)
    if count == 1 or device.type == "cpu":
        return device
    if torch.cuda.device_count() < count:
        detail = f"devices is {count}, but torch sees {torch.cuda.device_count()} GPUs"
        raise AnchorageError(DEVICE_UNAVAILABLE, detail)
    return torch.device("cuda", rank)
