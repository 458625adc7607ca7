"""The mean of clipped updates with Gaussian noise (DP-FedAvg: McMahan et al. 2018, arXiv:1710.06963, Algorithm 1)."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.metric_names import EPSILON
from anchorage.engine.accounting import Mechanism, epsilon
from anchorage.engine.aggregation.norms import norms_of
from anchorage.engine.aggregation.regions import assemble, float_regions, for_each_chunk
from anchorage.engine.aggregation.single_tensors import TensorReader, with_tensors
from anchorage.transport.tensors.chunks import ChunkSource, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

_KEY_BYTES = 32


class NoisedMean:
    """Scales every update's change of the model down to a norm, adds noise to the sum of all, and divides by their number.

    With or without one silo's change the sum differs by at most `clip_norm`: that is the sensitivity. The number is the same in both, as who takes
    part is told anyway. The noise is drawn from a secret of the run and the updates themselves: nobody else can draw it, and a round that
    is played again with the same updates gives the same model, not a second look at them.

    Parameters
    ----------
    clip_norm : float
        Greatest Euclidean norm of a change, over all floats of an update together.
    noise_multiplier : float
        Standard deviation of the sum's noise in each number, divided by `clip_norm`.
    delta : float
        At which ε is told.

    Raises
    ------
    AnchorageError
        dp-accounting is not installed.
    """

    def __init__(self, clip_norm: float, noise_multiplier: float, delta: float) -> None:
        self._clip_norm, self._noise_multiplier, self._delta = clip_norm, noise_multiplier, delta
        self._key, self._rounds = secrets.token_bytes(_KEY_BYTES), 0
        epsilon([Mechanism(noise_multiplier)], delta)  # before a round is played in vain

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return ``w + (sum min(1, C / |w_k - w|) (w_k - w) + N(0, (z C)^2)) / K`` of the K updates that have a weight; integers are the model's.

        Variances that the noise made negative become 0.

        Raises
        ------
        NonFiniteUpdate
            An update with a weight holds a number that is not finite.
        """
        origin = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
        norms = norms_of(updates, layout, origin)
        lengths = [sqrt(norm.trained**2 + norm.other**2) for norm in norms]
        scales = [min(1.0, self._clip_norm / length) if length else 1.0 for length in lengths]
        counted = [(update, scale) for update, scale, p in zip(updates, scales, weights, strict=True) if p > 0]
        regions, seed = float_regions(layout), self._seed(updates, origin)
        deviation = self._noise_multiplier * self._clip_norm

        def add_noise(index: int) -> tuple[bytes, bytes]:
            before = origin.chunk(index)
            chunks = [(update.chunk(index), scale) for update, scale in counted] if regions[index] else []
            draws = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
            encoded = []
            for region in regions[index]:
                start = region.read(before).astype(np.float64)
                total = draws.normal(0.0, deviation, region.count)
                for chunk, scale in chunks:
                    if scale > 0:  # else the change is beyond all measure
                        total += scale * (region.read(chunk) - start)
                encoded.append(region.encode(start + total / len(counted)))
            data = assemble(regions[index], encoded, before)
            return data, chunk_digest(data)

        done = for_each_chunk(add_noise, len(regions))
        self._rounds += 1
        return _usable(ModelBytes(layout, (data for data, _ in done), (digest for _, digest in done)))

    def metrics(self) -> Mapping[str, float]:
        """Return the ε of all rounds so far, and its δ."""
        return {
            EPSILON: epsilon([Mechanism(self._noise_multiplier, steps=self._rounds)], self._delta),
            "delta": self._delta,
        }

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the secret and the number of rounds."""
        return {"key": np.frombuffer(self._key, np.uint8), "rounds": np.array(self._rounds)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self._key, self._rounds = state["key"].tobytes(), int(state["rounds"])

    def _seed(self, updates: Sequence[ChunkSource], origin: ModelBytes) -> int:
        """Return 256 bits of the secret and of what is added up."""
        inputs = (origin.manifest.digest, *(update.manifest.digest for update in updates))
        return int.from_bytes(hashlib.blake2b(" ".join(inputs).encode(), key=self._key, digest_size=32).digest())


def _usable(model: ModelBytes) -> ModelBytes:
    """Return the model with no variance below 0."""
    read = TensorReader(model)
    entries = [entry for entry in model.layout.tensors if entry.name.endswith("running_var")]
    return with_tensors(model, {entry: np.maximum(read(entry), 0.0) for entry in entries}) if entries else model
