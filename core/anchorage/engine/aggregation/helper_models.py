"""FedMatch's helpers: a silo is sent the unsupervised parts of the silos whose models are most like its own (METHODS.md 6.6)."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import ResolvedMethod
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, SideChannel
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.joined import JoinedSource, Stretch
from anchorage.transport.tensors.layout import PSI, Layout
from anchorage.transport.tensors.model import ModelBytes

HELPER = "helper"
"""Begins the names of the tensors that travel behind a model."""
EVERY = 10
"""Rounds from one in which helpers are sent to the next, as in the public code (METHODS.md 5.3)."""


def helper_name(index: int, tensor: str) -> str:
    """Return the name under which a helper's `psi.NAME` travels to a silo."""
    return f"{HELPER}{index}.{tensor.removeprefix(PSI)}"


def task_layout(down: Layout, method: ResolvedMethod) -> Layout:
    """Return what a train task's model consists of: the community model and, in FedMatch, room for every helper's unsupervised part."""
    if method.pseudo_labels.type != "Helpers":
        return down
    own = [(t.name, t.dtype, t.shape) for t in down.tensors]
    parts = [t for t in down.tensors if t.name.startswith(PSI)]
    count = method.decomposition.helpers
    return Layout.of([*own, *((helper_name(h, t.name), t.dtype, t.shape) for h in range(count) for t in parts)])


def without_helpers(down: Layout) -> Layout:
    """Return the layout of the community model alone; `down` is that of a train task's model, with helpers or without."""
    return down.select(t.name for t in down.tensors if not t.name.startswith(HELPER))


class HelperModels(RoundMemory):
    """Remembers an embedding of every silo's model and picks each silo's helpers by it.

    Reads ``side["embedding"]``, float64 of shape [C]: the silo's class probabilities for one image of noise that all share. What is sent
    down is different for every silo, see `model_for`.

    Parameters
    ----------
    method : ResolvedMethod
        With a decomposition.
    num_classes : int
        Classes C.
    """

    keeps_updates = sparse_updates = True

    def __init__(self, method: ResolvedMethod, num_classes: int) -> None:
        self._method, self._num_classes = method, num_classes
        self._embeddings: dict[str, NDArray[np.float64]] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the embeddings of this round; those of another shape or dtype, or not finite, are left out."""
        for silo, announcement in announcements.items():
            told = announcement.side.get("embedding")
            known = told is not None and told.dtype == np.float64 and told.shape == (self._num_classes,)
            if told is not None and known and np.isfinite(told).all():
                self._embeddings[silo] = told

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the embeddings by silo."""
        return dict(self._embeddings)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take embeddings that `state` returned."""
        self._embeddings = {silo: array.astype(np.float64) for silo, array in state.items()}

    def helpers_of(self, silo: str, known: Collection[str]) -> list[str]:
        """Return the silos among `known` whose embeddings are nearest to this one's, ties by name; none for a silo that was never seen."""
        own = self._embeddings.get(silo)
        if own is None:
            return []
        others = [other for other in known if other != silo and other in self._embeddings]
        distance = {other: float(np.linalg.norm(self._embeddings[other] - own)) for other in others}
        return sorted(others, key=lambda other: (distance[other], other))[: self._method.decomposition.helpers]

    def model_for(
        self, silo: str, round_number: int, model: ModelBytes, up: Layout, updates: Mapping[str, ChunkSource]
    ) -> tuple[ChunkSource, SideChannel]:
        """Return a silo's model with its helpers' parts behind it every tenth round, and ``helpers``, int64: how many there are.

        It then has the layout of `task_layout`; where only some helpers are missing, the community's own part stands in their place. In
        the other rounds, and for a silo without any helper, it is the community model alone.
        """
        helpers = self.helpers_of(silo, updates) if round_number % EVERY == 0 else []
        if not helpers:
            return model, {"helpers": np.array(0)}
        stretches = [Stretch(model, 0, model.layout.nbytes)]
        for index in range(self._method.decomposition.helpers):
            source, layout = (updates[helpers[index]], up) if index < len(helpers) else (model, model.layout)
            parts = [t for t in layout.tensors if t.name.startswith(PSI)]
            stretches += [Stretch(source, t.offset, t.offset + t.nbytes) for t in parts]
        joined = JoinedSource(task_layout(model.layout, self._method), stretches)
        return joined, {"helpers": np.array(len(helpers))}
