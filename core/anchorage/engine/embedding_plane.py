"""Embeddings of validation images in two dimensions, as the records of a few rounds keep them for pictures."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

PICTURES = 4
"""How often in a run embeddings are drawn, besides at its start."""
LEAST_IMAGES = 10
"""Of fewer images nothing is drawn."""
_LARGEST_PERPLEXITY = 30.0
_PER_NEIGHBOUR = 3
"""t-SNE looks at so many images per unit of its perplexity."""
_START = 1e-4
"""Standard deviation of the places where t-SNE begins."""


@dataclass(frozen=True, slots=True)
class EmbeddingPlane:
    """Embeddings of some validation images in two dimensions."""

    layer: str
    """Module of the network that they are outputs of."""
    projection: Literal["PCA", "TSNE"]
    """How they were projected."""
    points: tuple[tuple[int, int, float, float], ...]
    """Of each image: true class, predicted class, and the two coordinates."""

    def as_array(self) -> NDArray[np.float64]:
        """Return the points as an array [n, 4]."""
        return np.array(self.points, dtype=np.float64).reshape(-1, 4)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"layer": self.layer, "projection": self.projection, "points": [list(point) for point in self.points]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "EmbeddingPlane":
        """Read what `to_json` wrote.

        Raises
        ------
        KeyError, TypeError, ValueError
            The values are not of a plane.
        """
        points = ((int(true), int(predicted), float(x), float(y)) for true, predicted, x, y in values["points"])
        return cls(values["layer"], values["projection"], tuple(points))


def is_pictured(round_number: int, rounds: int, evaluate_every: int) -> bool:
    """Return whether an evaluated round is the first one of a quarter of the run, or the last round."""
    quarter = max(1, -(-rounds // PICTURES))
    return round_number == rounds or round_number // quarter != (round_number - evaluate_every) // quarter


def plane_of(
    embeddings: NDArray[np.float32], layer: str, projection: Literal["PCA", "TSNE"], seed: int
) -> EmbeddingPlane | None:
    """Project embeddings into two dimensions.

    Parameters
    ----------
    embeddings : ndarray of float32, shape [n, 2 + d]
        True class, predicted class, then the embedding (`anchorage.transport.messages.Report`).
    layer : str
        What they are outputs of.
    projection : str
        ``PCA`` or ``TSNE``, whose result depends on the seed.
    seed : int
        The run's seed.

    Returns
    -------
    EmbeddingPlane or None
        With coordinates of four significant digits. None for fewer than `LEAST_IMAGES` images, or embeddings that are not finite.
    """
    if len(embeddings) < LEAST_IMAGES or not np.isfinite(embeddings).all():
        return None
    places = _principal(embeddings[:, 2:].astype(np.float64))
    if projection == "TSNE" and places[:, 0].std() > 0:
        places = _neighbours(embeddings[:, 2:], places, seed)
    points = zip(embeddings[:, :2].astype(int).tolist(), places.tolist(), strict=True)
    return EmbeddingPlane(
        layer, projection, tuple((*of, float(f"{x:.4g}"), float(f"{y:.4g}")) for of, (x, y) in points)
    )


def _principal(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first two principal components [n, 2]; of embeddings of one dimension the second is 0."""
    from sklearn.decomposition import PCA

    places = np.zeros((len(points), 2))
    components = min(2, points.shape[1])
    if points.std(0).any():
        places[:, :components] = PCA(components, svd_solver="full").fit_transform(points)
    return places


def _neighbours(points: NDArray[np.float32], start: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the places [n, 2] of t-SNE, which begins at the principal components; in one thread, for the same bits everywhere."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_LARGEST_PERPLEXITY, (len(points) - 1) / _PER_NEIGHBOUR)
    begin = (start / start[:, 0].std() * _START).astype(np.float32)
    with threadpool_limits(1):
        coordinates: NDArray[np.float64] = TSNE(
            2, perplexity=perplexity, init=begin, random_state=seed % 2**32, n_jobs=1
        ).fit_transform(points)
    return coordinates
